// SPDX-License-Identifier: Apache-2.0
// A graph in the text form, written node by node.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "../random.h"

namespace pagefuse::fuzz {

class TextGraph {
 public:
  struct Options {
    uint64_t weights = 1;              // seed of Weights
    bool constants_are_nodes = false;  // small constants are Constant nodes, not initialisers
  };
  explicit TextGraph(const Options& options) : options_(options), random_(options.weights) {}

  // A node with one output, or with several; attributes as in the text: `axis = 1, to = 7`. An
  // input "" is omitted. Returns the names of the outputs.
  std::string Add(const std::string& op, const std::vector<std::string>& inputs,
                  const std::string& attributes = "");
  std::vector<std::string> AddMany(const std::string& op, int outputs,
                                   const std::vector<std::string>& inputs,
                                   const std::string& attributes = "");

  // Constants. Weights are normally distributed around 0.
  std::string Weights(const std::vector<int64_t>& dims, double deviation);
  std::string Floats(const std::vector<int64_t>& dims, const std::vector<double>& values);
  std::string Integers(const std::string& type, const std::vector<int64_t>& dims,
                       const std::vector<int64_t>& values);
  std::string Ints(const std::vector<int64_t>& values);  // int64 [N]
  std::string Int(int64_t value);                        // int64 []
  std::string Float(double value);                       // float []

  // `type` with dims as in the text: `int64[batch, 3]`. Returns the name.
  std::string Input(const std::string& type, const std::string& name);
  void Output(const std::string& type, const std::string& value, const std::string& name);
  bool HasInput(const std::string& name) const;
  std::vector<std::string> input_names() const;

  // Inputs in another order, under other names.
  void ShuffleInputs(Random& random);
  void RenameInput(const std::string& name, const std::string& to);

  std::string Text(int64_t opset) const;

 private:
  struct Node {
    std::string op, attributes;
    std::vector<std::string> inputs, outputs;
  };
  struct Port {
    std::string type, name;
  };

  std::string NewName(const char* prefix) { return prefix + std::to_string(count_++); }
  std::string Printed(const std::string& name) const;
  std::string Joined(const std::vector<std::string>& names) const;

  Options options_;
  Random random_;
  int count_ = 0;
  std::vector<Node> nodes_;
  std::vector<std::string> initializers_;
  std::map<std::string, std::string> known_;  // initialisers by content
  std::vector<Port> inputs_, outputs_;
  std::map<std::string, std::string> renamed_;
};

}  // namespace pagefuse::fuzz
