// SPDX-License-Identifier: Apache-2.0
// Outputs of a pattern that its anchor does not reach: found forward, from values that are bound
// already.
#include <algorithm>
#include <optional>

#include "absl/container/flat_hash_set.h"

#include "pagefuse/passes/rewrite/match_solver.h"

namespace pagefuse {
namespace {

// Readers of a value in its graph, views looked through.
class Readers {
 public:
  explicit Readers(const Graph* graph) : graph_(graph) {}

  void Collect(const Value& value, int views = 0) {
    for (const Use& use : value.uses()) {
      if (use.node->graph() != graph_ || !seen_.insert(use.node).second) continue;
      readers_.push_back(use.node);
      const Value* output = use.node->output(0);
      if (IsElasticNode(*use.node) && use.index == 0 && output != nullptr && views < kMaxViews) {
        Collect(*output, views + 1);
      }
    }
  }

  const std::vector<Node*>& readers() const { return readers_; }

 private:
  const Graph* graph_;
  std::vector<Node*> readers_;
  absl::flat_hash_set<const Node*> seen_;
};

// The values that are `value` under another shape, itself first.
void CollectViews(Value* value, const Graph* graph, std::vector<Value*>& views, int depth = 0) {
  views.push_back(value);
  if (depth == kMaxViews) return;
  for (const Use& use : value->uses()) {
    if (use.node->graph() != graph || use.index != 0 || !IsViewNode(*use.node)) continue;
    if (use.node->output(0) != nullptr) CollectViews(use.node->output(0), graph, views, depth + 1);
  }
}

// All pattern nodes that `value` is computed by.
void CollectCone(const Value* value, std::vector<const Node*>& cone) {
  const Node* node = value->producer();
  if (node == nullptr || std::find(cone.begin(), cone.end(), node) != cone.end()) return;
  cone.push_back(node);
  for (const Value* input : node->inputs()) {
    if (input != nullptr) CollectCone(input, cone);
  }
}

int FirstOutput(const Node& node) {
  for (int i = 0; i < node.num_outputs(); ++i) {
    if (node.output(i) != nullptr) return i;
  }
  return 0;
}

}  // namespace

std::vector<Obligation> MatchSolver::ReadersCandidates(const Node& pattern_node,
                                                       Value* bound) const {
  Readers readers(scope_.graph);
  readers.Collect(*bound);
  const int output = FirstOutput(pattern_node);
  const int id = pattern_.id(pattern_node.output(output));
  std::vector<Obligation> candidates;
  for (Node* reader : readers.readers()) {
    Value* value = reader->output(output);
    if (value == nullptr || state_.Holds(reader) || !Plausible(id, value)) continue;
    candidates.push_back({.pattern = id, .value = value});
  }
  return candidates;
}

std::vector<Obligation> MatchSolver::CandidatesFor(int output) const {
  // A view of something bound already: any of that value's views, or itself.
  const int source = PatternViewSource(output);
  if (source != output && state_.bound[source] != nullptr) {
    std::vector<Value*> views;
    CollectViews(state_.bound[source], scope_.graph, views);
    std::vector<Obligation> candidates;
    // Views first: where the shapes agree without one, the value itself is tried last.
    for (size_t i = 1; i <= views.size(); ++i) {
      candidates.push_back({.pattern = output, .value = views[i % views.size()]});
    }
    return candidates;
  }
  std::vector<const Node*> cone;
  CollectCone(pattern_[output].value, cone);
  std::optional<std::vector<Obligation>> best;
  for (const Node* node : cone) {
    const int id = pattern_.id(node->output(FirstOutput(*node)));
    if (pattern_[id].kind != PatternKind::kNode || IsElasticNode(*node)) continue;
    if (state_.bound[id] != nullptr) continue;
    for (const Value* input : node->inputs()) {
      if (input == nullptr) continue;
      const int from = PatternViewSource(pattern_.id(input));
      if (state_.bound[from] == nullptr || pattern_[from].kind == PatternKind::kDerived) continue;
      std::vector<Obligation> candidates = ReadersCandidates(*node, state_.bound[from]);
      if (!best.has_value() || candidates.size() < best->size()) best = std::move(candidates);
    }
  }
  if (!best.has_value()) {
    // Nothing is shared with what was found: every node of the type is a candidate.
    best.emplace();
    for (Node* node : scope_.index->nodes(pattern_[output].value->producer()->op_type())) {
      Value* value = scope_.index->alive(node) && !state_.Holds(node)
                         ? node->output(pattern_[output].value->producer_index())
                         : nullptr;
      if (value != nullptr) best->push_back({.pattern = output, .value = value});
    }
  }
  const int64_t home = state_.nodes.empty() ? 0 : scope_.index->position(state_.nodes[0].second);
  std::stable_sort(best->begin(), best->end(), [&](const Obligation& a, const Obligation& b) {
    return std::abs(scope_.index->position(a.value->producer()) - home) <
           std::abs(scope_.index->position(b.value->producer()) - home);
  });
  constexpr size_t kMaxCandidates = 64;
  if (best->size() > kMaxCandidates) best->resize(kMaxCandidates);
  return *std::move(best);
}

}  // namespace pagefuse
