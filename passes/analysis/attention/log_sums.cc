// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "pagefuse/passes/analysis/attention/attention_match.h"
#include "pagefuse/passes/rewrite/pattern.h"

namespace pagefuse {
namespace {

// The sum itself, or a choice between it and what stands for it.
bool IsSum(const Value* value, const Value* sum) {
  const Node* node = value->producer();
  const bool chosen = node && node->Is("Where") && (node->input(1) == sum || node->input(2) == sum);
  return value == sum || chosen;
}

// The value and what nodes that move or choose make of it, the last first.
void AddFollowers(Value* value, int steps, std::vector<Value*>& followers) {
  constexpr size_t kMostFollowers = 256;
  for (const Use& use : value->uses()) {
    const Node& next = *use.node;
    const bool follows = next.Is("Add") || next.Is("Where") || next.Is("Transpose") ||
                         next.Is("Identity") || IsViewNode(next);
    if (steps == 0 || !follows || next.graph() != value->producer()->graph()) continue;
    if (followers.size() >= kMostFollowers) break;
    AddFollowers(next.output(0), steps - 1, followers);
  }
  followers.push_back(value);
}

// Values that may be logarithms of the sum and a little more, the last first.
std::vector<Value*> LogSumCandidates(const Graph& graph, const Value* sum) {
  constexpr int kMostSteps = 8;
  std::vector<Value*> candidates;
  for (const auto& node : graph.nodes()) {
    if (!node->Is("Log") || !IsSum(node->input(0), sum)) continue;
    AddFollowers(node->output(0), kMostSteps, candidates);
  }
  return candidates;
}

// True if something else reads the value than what was read so far.
bool IsReadElsewhere(const IndexingAnalysis& reader, const Value& value) {
  return value.is_output() || std::ranges::any_of(value.uses(), [&](const Use& use) {
           return !reader.visited().contains(use.node);
         });
}

// The value at the axes of rows, in one of their orders.
std::optional<Element> AtRows(Value* value, const std::vector<IndexExpr>& rows) {
  if (!value->shape()) return std::nullopt;
  Element element{value, {}};
  size_t next = 0;
  for (const Dim& dim : value->shape()->dims()) {
    if (dim.constant() == 1) {
      element.at.emplace_back();
    } else if (next < rows.size()) {
      element.at.push_back(rows[next++]);
    } else {
      return std::nullopt;
    }
  }
  return next == rows.size() ? std::optional(element) : std::nullopt;
}

}  // namespace

std::optional<LogSums> LogSumsOf(IndexingAnalysis& reader, const Graph& graph,
                                 const AttentionMatch& match) {
  if (match.sink && match.softmax && !match.softmax->sink()) return std::nullopt;
  return LogSumsOfKeys(reader, graph, match);
}

std::optional<LogSums> LogSumsOfKeys(IndexingAnalysis& reader, const Graph& graph,
                                     const AttentionMatch& match) {
  if (!match.softmax || !match.softmax->sum()) return std::nullopt;
  std::vector<IndexExpr> rows;
  for (const IndexExpr& index : match.output.at) {
    if (index.Key() != match.d->key && !index.is_constant()) rows.push_back(index);
  }
  std::ranges::sort(rows, [](const IndexExpr& a, const IndexExpr& b) { return a.Key() < b.Key(); });
  for (Value* value : LogSumCandidates(graph, match.softmax->sum()->value)) {
    if (!IsReadElsewhere(reader, *value)) continue;
    std::vector<IndexExpr> order = rows;
    do {
      const std::optional<Element> element = AtRows(value, order);
      WrittenSoftmax softmax = *match.softmax;
      if (!element || !softmax.ReadLogSum(reader.Source(*element))) continue;
      return LogSums{*element, softmax.empty()};
    } while (std::next_permutation(
        order.begin(), order.end(),
        [](const IndexExpr& a, const IndexExpr& b) { return a.Key() < b.Key(); }));
  }
  return std::nullopt;
}

}  // namespace pagefuse
