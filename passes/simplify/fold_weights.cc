// SPDX-License-Identifier: Apache-2.0
// fold-weights: what moves the numbers of a constant, and is computed anew at every run, is computed
// once, where nothing else reads the constant: memory holds one of both.
//
// Such are the halves of the expansion of latent rows, split by head, that attention over these rows
// multiplies queries and results by. It comes behind the rules, which match constants as exporters
// write them.
#include <algorithm>
#include <array>
#include <map>
#include <string>

#include "absl/container/flat_hash_set.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/tensor/absent_tensor.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/function_pass.h"
#include "pagefuse/passes/simplify/simplify.h"

namespace pagefuse {
namespace {

constexpr const char kName[] = "fold-weights";
constexpr std::array kMoves = {"Flatten", "Identity", "Reshape",   "Slice",
                               "Split",   "Squeeze",  "Transpose", "Unsqueeze"};

bool Moves(const Node& node) {
  return node.domain().empty() && std::ranges::count(kMoves, node.op_type()) > 0 &&
         !HasAttributeRef(node);
}

// Of the graph; or left out, which no op that moves does.
bool IsResult(const Value* output) { return output == nullptr || output->is_output(); }

class Weights {
 public:
  Weights(Model& model, PassContext& context, const GraphScope& scope)
      : model_(model), context_(context), graph_(*scope.graph), opsets_(*scope.opsets) {
    for (const auto& value : graph_.values()) {
      if (value->initializer() != nullptr) ++holders_[value->initializer()->data()];
    }
  }

  absl::StatusOr<bool> Run() {
    bool changed = false;
    absl::flat_hash_set<const Node*> erased;
    for (Node* node : NodesOf(graph_)) {
      if (erased.contains(node) || !Moves(*node) || !IsTheOnlyReader(*node)) continue;
      if (std::ranges::any_of(node->outputs(), IsResult)) continue;
      const auto moved = OutputsOfConstants(*node, opsets_);
      if (!moved.has_value()) continue;
      Value* weight = node->input(0);
      for (int i = 0; i < node->num_outputs(); ++i) {
        PutConstant(graph_, *node->output(i), (*moved)[i], context_.contents);
      }
      for (const Node* dead : EraseDead(node, context_.contents)) erased.insert(dead);
      if (!weight->is_input()) Erase(weight);
      changed = true;
      PF_RETURN_IF_ERROR(context_.Rewrote(model_, kName));
    }
    return changed;
  }

 private:
  // Of a constant of this graph whose memory no other constant is.
  bool IsTheOnlyReader(const Node& node) const {
    const Value* weight = node.num_inputs() > 0 ? node.input(0) : nullptr;
    const Tensor* constant = weight == nullptr ? nullptr : ConstantOf(weight);
    if (constant == nullptr || constant->size() == 0 || IsAbsent(*constant)) return false;
    const auto holders = holders_.find(constant->data());
    return weight->graph() == &graph_ && weight->uses().size() == 1 && !weight->is_output() &&
           (holders == holders_.end() || holders->second == 1);
  }

  // Its memory goes before the next one's comes.
  void Erase(Value* weight) {
    context_.contents.erase(weight);
    graph_.EraseValue(weight);
  }

  Model& model_;
  PassContext& context_;
  Graph& graph_;
  const OpsetImports& opsets_;
  std::map<const void*, int> holders_;  // constants on the same memory
};

}  // namespace

std::unique_ptr<Pass> FoldWeights() {
  return MakeGraphPass(
      kName,
      "Computes transposed, split and reshaped constants that nothing else reads once, whatever their "
      "size.",
      [](Model& model, PassContext& context, const GraphScope& scope) {
        return Weights(model, context, scope).Run();
      });
}

}  // namespace pagefuse
