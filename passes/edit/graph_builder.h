// SPDX-License-Identifier: Apache-2.0
// Adds nodes and constants to a graph at a given place.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pagefuse/passes/edit/attributes.h"

namespace pagefuse {

// Inserts before `anchor` (null: at the end). Names of new values start with `prefix` and are made
// unique.
class GraphBuilder {
 public:
  GraphBuilder(Graph& graph, Node* anchor, std::string prefix)
      : graph_(graph), anchor_(anchor), prefix_(std::move(prefix)) {}

  // A node with one output, whose value is returned.
  Value* Add(std::string_view op, std::vector<Value*> inputs, const Attributes& attributes = {});
  // A node with any number of outputs.
  Node* AddNode(std::string_view domain, std::string_view op, std::vector<Value*> inputs,
                int num_outputs, const Attributes& attributes = {});
  // A node of ours with one output, whose value is returned.
  Value* AddOurs(std::string_view op, std::vector<Value*> inputs,
                 const Attributes& attributes = {}) {
    return AddNode("pagefuse", op, std::move(inputs), 1, attributes)->output(0);
  }

  Value* Cast(Value* value, DataType type) { return Add("Cast", {value}, {{"to", type}}); }
  Value* Reshape(Value* value, std::vector<int64_t> dims) {
    return Add("Reshape", {value, Ints(std::move(dims))});
  }
  // [B, H, S, D] of [B, S, H, D], and back.
  Value* SwapHeadsAndTokens(Value* value) {
    return Add("Transpose", {value}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
  }

  // The length of one axis (counted from the front) as a list of one number.
  Value* Size(Value* value, int64_t axis);

  // Constants are initialisers.
  Value* Ints(std::vector<int64_t> values);
  Value* Int(int64_t value);
  Value* Float(float value);
  // The number in the floating-point type of a value that it is computed with; float where that has
  // no type yet.
  Value* Float(float value, DataType type);

 private:
  Graph& graph_;
  Node* anchor_;
  std::string prefix_;
};

}  // namespace pagefuse
