// SPDX-License-Identifier: Apache-2.0
// fuse-sink-attention: fuses attention with sinks into pagefuse.SinkAttention, where no paged op
// fused it.
//
//   scores = query . key * scale + mask
//   Slice (Softmax (Concat (scores, sinks)), all but the last) . value
//     =>  pagefuse.SinkAttention <scale> (query, key, value, mask, sinks)
//
// Masks that are added one by one are joined. Keys and values of one head that are repeated for all
// are read as they are.
#include <optional>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/analysis/attention/sink_match.h"
#include "pagefuse/passes/analysis/indexing/indexing_analysis.h"
#include "pagefuse/passes/edit/constants.h"
#include "pagefuse/passes/edit/graph_builder.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/match_failure.h"
#include "pagefuse/passes/function_pass.h"
#include "pagefuse/passes/fuse/fuse.h"

namespace pagefuse {
namespace {

constexpr std::string_view kName = "fuse-sink-attention";
constexpr int kRank = 4;

bool IsHeads(const Value* value) {
  return value->shape() && value->shape()->rank() == kRank && value->dtype() == DataType::kFloat;
}

// What the scores are a sum of.
struct Scores {
  Value* query = nullptr;
  Value* key = nullptr;
  float scale = 1;
  std::vector<Value*> masks;
};

// The number that one operand of a product or quotient is.
struct Factor {
  Value* value = nullptr;
  double number = 1;
};
std::optional<Factor> FactorOf(const Node& node) {
  for (int side : {0, 1}) {
    const bool scales = node.Is("Mul") || (node.Is("Div") && side == 1);
    const auto number = scales ? NumberOf(node.input(side)) : std::nullopt;
    if (number && *number != 0) {
      return Factor{node.input(1 - side), node.Is("Div") ? 1 / *number : *number};
    }
  }
  return std::nullopt;
}

// Scaled products of queries and transposed keys; false if the value is none.
bool TakeProduct(Value* value, Scores& scores) {
  double scale = 1;
  const Node* node = value->producer();
  while (node) {
    const auto factor = FactorOf(*node);
    if (!factor) break;
    scale *= factor->number;
    node = factor->value->producer();
  }
  const Node* transpose = node && node->Is("MatMul") ? node->input(1)->producer() : nullptr;
  if (!transpose || !transpose->Is("Transpose") || scores.query) return false;
  const auto perm = transpose->IntsAttribute("perm", {});
  if (!perm.ok() || *perm != std::vector<int64_t>{0, 1, 3, 2}) return false;
  scores.query = node->input(0);
  scores.key = transpose->input(0);
  scores.scale = static_cast<float>(scale);
  return true;
}

absl::StatusOr<Scores> ReadScores(const SinkMatch& match) {
  Scores scores;
  std::vector<Value*> open = {match.scores};
  while (!open.empty()) {
    Value* value = open.back();
    open.pop_back();
    const Node* node = value->producer();
    if (node && node->Is("Add") && value->shape() &&
        ProvablyEqual(*value->shape(), *match.scores->shape())) {
      open.insert(open.end(), node->inputs().begin(), node->inputs().end());
    } else if (!TakeProduct(value, scores)) {
      if (!IsHeads(value))
        return MatchFailure(*value, ": is added to the scores and no float mask of rank 4");
      scores.masks.push_back(value);
    }
  }
  if (!scores.query) return MatchFailure(*match.scores, ": is no product of queries and keys");
  return scores;
}

// The one head that is repeated for all, or the rows of heads as they are.
Value* SharedHead(Value* rows, const SymbolicContents& contents) {
  IndexingAnalysis reader(contents);
  const auto whole = reader.Whole(rows);
  if (!whole.ok()) return rows;
  const Element source = reader.Source(*whole);
  const bool shared = source.at.size() == kRank && source.at[0].Key() == whole->at[0].Key() &&
                      source.at[1].number() == 0 && source.at[2].Key() == whole->at[2].Key() &&
                      source.at[3].Key() == whole->at[3].Key() && IsHeads(source.value) &&
                      (*source.value->shape())[1] == Dim(1) &&
                      ProvablyEqual((*source.value->shape())[2], (*rows->shape())[2]);
  return shared ? source.value : rows;
}

// FailedPrecondition, nothing but unread nodes added, if the match is no such attention.
absl::Status Fuse(Graph& graph, const SinkMatch& match, const SymbolicContents& contents) {
  PF_ASSIGN_OR_RETURN(const Scores scores, ReadScores(match));
  Value* value = match.sum->input(1);
  for (const Value* rows : {scores.query, scores.key, value}) {
    if (!IsHeads(rows)) return MatchFailure(*rows, ": expected float rows of heads, of rank 4");
  }
  PF_ASSIGN_OR_RETURN(Value * sinks, SinksByHead(graph, match, contents));
  if (match.sinks->dtype() != DataType::kFloat)
    return MatchFailure(*match.sinks, ": expected float sinks");
  GraphBuilder builder(graph, match.sum, match.sum->output(0)->name());
  Value* mask = nullptr;
  for (Value* part : scores.masks) {
    mask = mask ? builder.Add("Add", {mask, part}) : part;
  }
  if (!mask) {
    mask = builder.Add("Reshape", {builder.Float(0), builder.Ints({1, 1, 1, 1})});
  }
  Node* attention = builder.AddNode(
      "pagefuse", "SinkAttention",
      {scores.query, SharedHead(scores.key, contents), SharedHead(value, contents), mask, sinks},
      1);
  attention->SetAttribute("scale", MakeAttribute(scores.scale));
  TakePlace(*attention, *match.sum);
  ReplaceNode(match.sum, attention->output(0));
  return absl::OkStatus();
}

absl::StatusOr<bool> Run(Model& model, PassContext& context) {
  const SymbolicContents& contents = context.contents;
  Graph& graph = *model.graph;
  std::vector<SinkMatch> matches;
  for (const auto& node : graph.nodes()) {
    if (const auto match = SinkMatchAt(node.get(), contents)) matches.push_back(*match);
  }
  bool changed = false;
  for (const SinkMatch& match : matches) {
    const absl::Status fused = Fuse(graph, match, contents);
    if (!fused.ok()) {
      context.AddMissedMatch(kName, NodeLabel(*match.softmax), StdView(fused.message()), 4);
      continue;
    }
    model.opset_imports["pagefuse"] = 1;
    PF_RETURN_IF_ERROR(context.Rewrote(model, kName));
    changed = true;
  }
  return changed;
}

}  // namespace

std::unique_ptr<Pass> FuseSinkAttention() {
  return MakePass(kName,
                  "Fuses attention with sinks into SinkAttention where no paged op fused it.", Run);
}

}  // namespace pagefuse
