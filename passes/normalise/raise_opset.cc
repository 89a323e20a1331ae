// SPDX-License-Identifier: Apache-2.0
// raise-opset: converts older models to the opset of the canonical vocabulary, so that one pattern
// serves them all. Where an op on the way changed its meaning and no rewrite is known here, the
// import stays as it is.
//
// Attention-23 broadcasts its mask over the keys; Attention-24 takes a mask shorter than the keys
// for one that hides the rest of them, a mask of one key too. So a mask is repeated to all keys
// wherever it is not provably as long.
#include <array>
#include <optional>
#include <string>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/analysis/indexing/broadcast_proof.h"
#include "pagefuse/passes/edit/graph_builder.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/op_types.h"
#include "pagefuse/passes/edit/ports.h"
#include "pagefuse/passes/function_pass.h"
#include "pagefuse/passes/normalise/normalise.h"
#include "pagefuse/passes/normalise/older_forms.h"

namespace pagefuse {
namespace {

constexpr std::string_view kName = "raise-opset";
constexpr int64_t kOldest = 9;

// Ops whose form changed before opset 24 in a way that is not rewritten (older_forms.h), and the first
// opset with the new form.
struct Change {
  std::string_view op_type;
  int64_t opset;
};
constexpr std::array kUnknownChanges = {Change{"BatchNormalization", 15}, Change{"DFT", 20},
                                        Change{"GroupNormalization", 21}, Change{"Upsample", 10},
                                        Change{"GridSample", 20},         Change{"Scan", 9}};

using ports::Attention;

bool HasMask(const Node& node) {
  return node.Is("Attention") && node.input(Attention::kKey) != nullptr &&
         node.input(Attention::kMask) != nullptr;
}

// The axis of keys [B, H, L, D] or [B, L, H * D] along which they follow each other; nullopt if
// their rank is not known.
std::optional<int> KeyAxis(const Node& attention) {
  const std::optional<Shape>& shape = attention.input(Attention::kKey)->shape();
  if (!shape.has_value() || (shape->rank() != 3 && shape->rank() != 4)) return std::nullopt;
  return shape->rank() - 2;
}

// Why the graph cannot be raised; nullopt if it can.
std::optional<std::string> Obstacle(const Graph& graph, int64_t opset) {
  for (const auto& node : graph.nodes()) {
    for (const Graph* subgraph : node->Subgraphs()) {
      if (auto inner = Obstacle(*subgraph, opset)) return inner;
    }
    if (!node->domain().empty()) continue;
    for (const Change& change : kUnknownChanges) {
      if (node->op_type() == change.op_type && opset < change.opset) {
        return StrCat(node->Description(), " has another meaning from opset ", change.opset);
      }
    }
    if (auto form = ObstacleInForm(*node, opset)) return form;
    if (HasMask(*node) && !KeyAxis(*node).has_value()) {
      return StrCat(node->Description(), ": input 1 \"", node->input(Attention::kKey)->name(),
                    "\": expected a known rank of 3 or 4 to raise the mask by, got ",
                    node->input(Attention::kKey)->shape().has_value()
                        ? node->input(Attention::kKey)->shape()->ToString()
                        : "an unknown shape");
    }
  }
  return std::nullopt;
}

// Keys of a node that HasMask: past and new ones.
Dim KeysOf(const Node& attention) {
  const Dim fresh = (*attention.input(Attention::kKey)->shape())[*KeyAxis(attention)];
  const Value* past = attention.input(Attention::kPastKey);
  if (past == nullptr) return fresh;
  const bool known = past->shape().has_value() && past->shape()->rank() == 4;
  return known ? (*past->shape())[2] + fresh : Dim::Unknown();
}

void RaiseMask(Graph& graph, Node& attention, const SymbolicContents& contents) {
  if (Reaches(attention.input(Attention::kMask), 0, KeysOf(attention), contents)) return;
  GraphBuilder builder(graph, &attention, "all_keys");
  Value* keys = builder.Size(attention.input(Attention::kKey), *KeyAxis(attention));
  Value* past = attention.input(Attention::kPastKey);
  if (past != nullptr) keys = builder.Add("Add", {builder.Size(past, 2), keys});
  attention.SetInput(Attention::kMask,
                     builder.Add("Expand", {attention.input(Attention::kMask), keys}));
}

void Raise(Graph& graph, int64_t opset, SymbolicContents& contents) {
  for (Node* node : NodesOf(graph)) {
    for (Graph* subgraph : node->Subgraphs()) Raise(*subgraph, opset, contents);
    if (HasMask(*node)) RaiseMask(graph, *node, contents);
    if (node->domain().empty()) RaiseForm(graph, node, opset, contents);
  }
}

bool RaiseGraph(Graph& graph, OpsetImports& opsets, PassContext& context) {
  const int64_t opset = OpsetOf(opsets, "");
  if (opset == 0 || opset >= kCanonicalOpset) return false;
  const std::optional<std::string> obstacle =
      opset < kOldest
          ? StrCat("opset: expected ", kOldest, " to ", kCanonicalOpset, ", got ", opset)
          : Obstacle(graph, opset);
  if (obstacle.has_value()) {
    context.AddMissedMatch(kName, graph.name, *obstacle);
    return false;
  }
  Raise(graph, opset, context.contents);
  opsets.erase("ai.onnx");
  opsets[""] = kCanonicalOpset;
  return true;
}

absl::StatusOr<bool> RaiseAll(Model& model, PassContext& context) {
  bool changed = RaiseGraph(*model.graph, model.opset_imports, context);
  for (Function& function : model.functions) {
    if (function.body == nullptr) continue;
    changed = RaiseGraph(*function.body, function.opset_imports, context) || changed;
  }
  if (changed) PF_RETURN_IF_ERROR(context.Rewrote(model, kName));
  return changed;
}

}  // namespace

std::unique_ptr<Pass> RaiseOpset() {
  return MakePass(
      kName,
      "Converts models of opset 9 and later to opset 24, which has the ops of the canonical "
      "vocabulary.",
      RaiseAll);
}

}  // namespace pagefuse
