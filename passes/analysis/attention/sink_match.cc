// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/analysis/attention/sink_match.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/passes/analysis/indexing/indexing_analysis.h"
#include "pagefuse/passes/edit/graph_builder.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/match_failure.h"
#include "pagefuse/passes/edit/readers_text.h"
#include "pagefuse/passes/edit/slice_cuts.h"

namespace pagefuse {
namespace {

bool IsLastAxis(const Node& node, const Value& of, int64_t fallback) {
  const int rank = of.shape() ? of.shape()->rank() : 0;
  return rank > 0 && NormalAxis(IntOr(node, "axis", fallback), rank) == rank - 1;
}

// The largest of each row, as the softmax runs.
bool IsLargestOfRows(const Node& most, const SymbolicContents& contents) {
  const auto reduced = most.Is("ReduceMax") ? ReducedBy(most, contents) : std::nullopt;
  return reduced && IntOr(most, "keepdims", 1) != 0 &&
         reduced->axis + 1 == reduced->value->shape()->rank();
}

// What the softmax is of, before the largest of each row is taken off, which changes nothing.
const Node* JoinedScores(const Node& softmax, const SymbolicContents& contents) {
  const Node* node = softmax.input(0)->producer();
  if (node && node->Is("Sub")) {
    const Node* most = node->input(1)->producer();
    const bool shifts =
        most && IsLargestOfRows(*most, contents) && most->input(0) == node->input(0);
    node = shifts ? node->input(0)->producer() : nullptr;
  }
  return node && node->Is("Concat") ? node : nullptr;
}

// The scores alone, of their own shape.
bool CutsLast(const Node& slice, const Value& scores, const SymbolicContents& contents) {
  const auto cut = OnlyCut(slice, contents);
  const auto& shape = slice.output(0)->shape();
  return cut && cut->start.constant() == 0 && cut->axis == scores.shape()->rank() - 1 && shape &&
         (cut->end == Dim(-1) || ProvablyEqual(*shape, *scores.shape()));
}

// Into another float type: of the probabilities, an integer keeps the ones alone.
bool CastsFloats(const Node& node) {
  return node.Is("Cast") && IsFloatingPoint(node.input(0)->dtype()) &&
         IsFloatingPoint(node.output(0)->dtype()) && BitWidth(node.output(0)->dtype()) >= 16;
}

}  // namespace

std::optional<SinkMatch> SinkMatchAt(Node* softmax, const SymbolicContents& contents) {
  if (!softmax->Is("Softmax") || !IsLastAxis(*softmax, *softmax->input(0), -1)) return std::nullopt;
  const Node* joined = JoinedScores(*softmax, contents);
  if (!joined || joined->num_inputs() != 2 || !IsLastAxis(*joined, *joined->output(0), 0)) {
    return std::nullopt;
  }
  SinkMatch match{.softmax = softmax, .scores = joined->input(0), .sinks = joined->input(1)};
  const auto& scores = match.scores->shape();
  const auto& sinks = match.sinks->shape();
  if (!scores || scores->rank() != 4 || !sinks || sinks->back(0).constant() != 1) {
    return std::nullopt;
  }
  match.cut = OnlyReader(*softmax->output(0));
  while (match.cut && (CastsFloats(*match.cut) || match.cut->Is("Identity"))) {
    match.cut = OnlyReader(*match.cut->output(0));
  }
  if (!match.cut || !CutsLast(*match.cut, *match.scores, contents)) return std::nullopt;
  match.sum = OnlyReader(*match.cut->output(0));
  return match.sum && match.sum->Is("MatMul") ? std::optional(match) : std::nullopt;
}

absl::StatusOr<Value*> SinksByHead(Graph& graph, const SinkMatch& match,
                                   const SymbolicContents& contents) {
  const auto refuse = [&](std::string_view why) {
    return MatchFailure(*match.softmax, ": ", *match.sinks, " beside its scores: ", why);
  };
  IndexingAnalysis reader(contents);
  PF_ASSIGN_OR_RETURN(const Element whole, reader.Whole(match.sinks));
  const Element element = reader.Source(whole);
  int by_head = 0;
  for (const IndexExpr& at : element.at) {
    if (at.is_constant() && at.number() == 0) continue;
    if (at.Key() != whole.at[1].Key()) return refuse("expected a number for each head");
    ++by_head;
  }
  const auto heads = (*match.scores->shape())[1].constant();
  const auto& shape = element.value->shape();
  Dim size(1);
  for (int axis = 0; shape && axis < shape->rank(); ++axis) size = size * (*shape)[axis];
  if (!heads || by_head > 1 || !shape || size.constant() != (by_head == 1 ? *heads : 1)) {
    return refuse("expected a number for each head");
  }
  GraphBuilder builder(graph, match.softmax, match.sinks->name());
  Value* list = builder.Add("Reshape", {element.value, builder.Ints({-1})});
  if (by_head == 0) list = builder.Add("Expand", {list, builder.Ints({*heads})});
  return list;
}

}  // namespace pagefuse
