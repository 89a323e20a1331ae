// SPDX-License-Identifier: Apache-2.0
// The base of passes that rewrite one node and its surroundings at a time, and the loop that runs
// them.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "pagefuse/passes/edit/attributes.h"
#include "pagefuse/passes/edit/axes.h"
#include "pagefuse/passes/edit/constants.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/op_types.h"
#include "pagefuse/passes/pass.h"

namespace pagefuse {

// What a peephole sees and may do. Nodes that it makes stand before the node it was called for.
class Peephole {
 public:
  Peephole(const GraphScope& scope, SymbolicContents& contents)
      : graph_(*scope.graph), opsets_(*scope.opsets), contents_(contents) {}

  Graph& graph() { return graph_; }
  const OpsetImports& opsets() const { return opsets_; }
  SymbolicContents& contents() { return contents_; }

  // Lets the readers of the node's first output read `to`; true if there were any.
  bool Replace(Node& node, Value* to);
  // Replaces the node by another one with the same first output: a new node whose only output takes
  // over. The shape and type of the old output pass on.
  bool ReplaceByNode(Node& node, std::string_view op_type, std::vector<Value*> inputs,
                     const Attributes& attributes = {});
  // A node with one output before `before`, typed by inference.
  Value* AddNode(Node& before, std::string_view op_type, std::vector<Value*> inputs,
                 const Attributes& attributes = {});
  // Initialisers, with names made from `base`.
  Value* Constant(std::string_view base, Tensor tensor) {
    return AddConstant(graph_, base, std::move(tensor), contents_);
  }
  Value* Ints(std::string_view base, const std::vector<int64_t>& values) {
    return AddInts(graph_, base, values, contents_);
  }

 private:
  Graph& graph_;
  const OpsetImports& opsets_;
  SymbolicContents& contents_;
};

// True if the graph changed; the node may be dead afterwards (the loop erases it), but is not
// erased by the function.
using PeepholeFn = bool (*)(Node& node, Peephole& peephole);

struct PeepholeRule {
  std::string_view name;      // for counts and explanations: "merge-reshapes"
  std::string_view op_types;  // of ai.onnx, space-separated
  PeepholeFn run;
};

// A pass that applies the rules to every node of every graph until none changes anything.
std::unique_ptr<Pass> MakePeepholePass(std::string_view name, std::string_view description,
                                       std::vector<PeepholeRule> rules);

// True if both shapes are known and provably the same.
bool SameShapes(const Value* a, const Value* b);

// The number that a ConstantOfShape fills the value with; nullopt if another node computes it.
std::optional<double> FilledNumberOf(const Value* value);
// The inputs of a Range that counts up to a length, which is a list of one; `axes` is the list {0}.
std::vector<Value*> CountInputs(Node& before, Peephole& peephole, Value* length, Value* axes);

// The number of a constant scalar.
std::optional<double> ScalarOf(const Value* value);

}  // namespace pagefuse
