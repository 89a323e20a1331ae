// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/analysis/indexing/replacement.h"

#include <algorithm>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/passes/edit/match_failure.h"
#include "pagefuse/passes/rewrite/pattern.h"

namespace pagefuse {
namespace {

bool IsCount(DataType type) {
  return type == DataType::kInt64 || type == DataType::kInt32 || type == DataType::kBool;
}

bool Moves(const Node& node) {
  static constexpr std::string_view kOps[] = {"Identity", "Transpose",      "Expand",
                                              "Slice",    "Split",          "Gather",
                                              "GatherND", "GatherElements", "Concat"};
  return IsViewNode(node) || std::any_of(std::begin(kOps), std::end(kOps),
                                         [&](std::string_view op) { return node.Is(op); });
}

}  // namespace

absl::Status ServesOnly(const IndexingAnalysis& reader, const std::vector<Value*>& results) {
  for (const Node* node : reader.visited()) {
    if (Moves(*node)) continue;
    for (const Value* value : node->outputs()) {
      const bool result = std::find(results.begin(), results.end(), value) != results.end();
      if (!value || result || IsCount(value->dtype())) continue;
      if (value->is_output()) {
        return MatchFailure(*value, " is a graph output");
      }
      for (const Use& use : value->uses()) {
        if (reader.visited().contains(use.node)) continue;
        return MatchFailure(*value, " is also read by ", *use.node);
      }
    }
  }
  return absl::OkStatus();
}

Replacement::Replacement(Graph& graph, const Value& output, std::string_view rule)
    : graph_(graph), rule_(rule), builder_(graph, output.producer(), output.name()) {
  for (const auto& node : graph.nodes()) before_.insert(node.get());
  for (const Value* value : graph.initializers()) constants_.insert(value);
}

std::vector<Node*> Replacement::Built() const {
  return NodesOf(graph_, [this](const Node& node) { return !before_.contains(&node); });
}

void Replacement::Undo() {
  std::vector<Node*> built = Built();
  for (auto it = built.rbegin(); it != built.rend(); ++it) graph_.EraseNode(*it);
  for (Value* value : graph_.initializers()) {
    if (!constants_.contains(value)) graph_.EraseValue(value);
  }
}

absl::Status Replacement::Infer(OpsetImports& opsets, SymbolicContents& contents) {
  opsets.emplace("pagefuse", 1);
  for (Node* node : Built()) {
    if (node->domain() == "pagefuse") SetMetadata(node->metadata, "pkg.pagefuse.rule", rule_);
    PF_RETURN_IF_ERROR(InferNode(*node, opsets, contents));
  }
  return absl::OkStatus();
}

absl::Status Replacement::Finish(const absl::StatusOr<std::vector<Value*>>& results,
                                 const std::vector<Value*>& old, OpsetImports& opsets,
                                 SymbolicContents& contents) {
  if (!results.ok()) {
    Undo();
    return results.status();
  }
  PF_RETURN_IF_ERROR(Infer(opsets, contents));
  for (size_t i = 0; i < old.size(); ++i) {
    Node* node = old[i]->producer();
    ReplaceValue(graph_, old[i], (*results)[i]);
    EraseDead(node, contents);
  }
  // The others may be read before the first is.
  return old.size() > 1 ? graph_.SortTopologically() : absl::OkStatus();
}

}  // namespace pagefuse
