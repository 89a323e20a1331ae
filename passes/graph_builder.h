// Short ways to add nodes and constants to a graph at a given place.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "pagefuse/ir/graph.h"

namespace pagefuse {

// Inserts before `anchor` (null: at the end). Names of new values start with `prefix` and are made
// unique.
class GraphBuilder {
 public:
  GraphBuilder(Graph& graph, Node* anchor, std::string prefix)
      : graph_(graph), anchor_(anchor), prefix_(std::move(prefix)) {}

  // A node with one output, whose value is returned.
  Value* Add(std::string_view op, std::vector<Value*> inputs);
  Value* Add(std::string_view op, std::vector<Value*> inputs, std::string_view attribute,
             std::vector<int64_t> ints);
  Value* Add(std::string_view op, std::vector<Value*> inputs, std::string_view attribute,
             int64_t value);
  // A node with any number of outputs.
  Node* AddNode(std::string_view domain, std::string_view op, std::vector<Value*> inputs,
                int num_outputs);

  // The length of one axis (counted from the front) as a list of one number.
  Value* Size(Value* value, int64_t axis);

  // Constants are initialisers.
  Value* Ints(std::vector<int64_t> values);
  Value* Int(int64_t value);
  Value* Float(float value);

 private:
  Graph& graph_;
  Node* anchor_;
  std::string prefix_;
};

}  // namespace pagefuse
