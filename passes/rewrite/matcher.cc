// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/rewrite/matcher.h"

#include <algorithm>

#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/rewrite/match_solver.h"

namespace pagefuse {
namespace {

void CollectAnchorTypes(const Node& node, std::vector<std::string>& types) {
  types.push_back(node.op_type());
  if (!MirroredType(node.op_type()).empty()) types.emplace_back(MirroredType(node.op_type()));
  if (!IsElasticNode(node)) return;
  if (IsViewNode(node)) types.insert(types.end(), {"Reshape", "Squeeze", "Unsqueeze", "Flatten"});
  const Value* input = node.input(0);
  if (input != nullptr && input->producer() != nullptr)
    CollectAnchorTypes(*input->producer(), types);
}

}  // namespace

int AnchorOutput(const Pattern& pattern) {
  const int count = static_cast<int>(pattern.outputs.size());
  for (int i = 0; i < count; ++i) {
    const Node* producer = pattern[pattern.outputs[i]].value->producer();
    if (producer != nullptr && !IsElasticNode(*producer)) return i;
  }
  return 0;
}

std::vector<std::string> AnchorTypes(const Pattern& pattern) {
  std::vector<std::string> types;
  const Node* producer = pattern[pattern.outputs[AnchorOutput(pattern)]].value->producer();
  if (producer != nullptr) CollectAnchorTypes(*producer, types);
  std::sort(types.begin(), types.end());
  types.erase(std::unique(types.begin(), types.end()), types.end());
  return types;
}

bool HasAll(const GraphIndex& index, const std::vector<std::string>& op_types) {
  return std::all_of(op_types.begin(), op_types.end(), [&index](const std::string& type) {
    return !index.nodes(type).empty() || !index.nodes(MirroredType(type)).empty();
  });
}

MatchResult MatchAt(const Pattern& pattern, const MatchScope& scope, Value* anchor,
                    const std::function<absl::Status(Match&)>& accept) {
  return MatchSolver(pattern, scope, accept).Run(anchor);
}

MatchResult MatchSolver::Run(Value* anchor) {
  state_.bound.resize(pattern_.values.size(), nullptr);
  state_.todo.push_back({.pattern = pattern_.outputs[AnchorOutput(pattern_)], .value = anchor});
  result_.matched = Solve();
  if (result_.matched) result_.matched_nodes = state_.depth();
  return result_;
}

bool MatchSolver::Solve() {
  while (!state_.todo.empty()) {
    if (gave_up_ || ++steps_ > kMaxSteps) {
      gave_up_ = true;
      return Fail("given up after ", kMaxSteps, " steps");
    }
    const Obligation claim = state_.todo.back();
    state_.todo.pop_back();
    std::vector<Step> steps = StepsFor(claim);
    if (steps.empty()) return false;
    if (steps.size() == 1) {
      if (!Apply(std::move(steps.front()))) return false;
      continue;
    }
    const MatchState before = state_;
    for (Step& step : steps) {
      if (Apply(std::move(step)) && Solve()) return true;
      if (gave_up_) return false;
      state_ = before;
    }
    return false;
  }
  return Finish();
}

bool MatchSolver::Apply(Step step) {
  if (step.bind >= 0) state_.bound[step.bind] = step.bind_to;
  if (step.pattern_node != nullptr) {
    state_.nodes.emplace_back(step.pattern_node, step.node);
    for (int i = 0; i < step.pattern_node->num_outputs(); ++i) {
      const Value* output = step.pattern_node->output(i);
      if (output == nullptr) continue;
      Value* real = step.node->output(i);
      if (real == nullptr) {
        if (output->uses().empty() && !output->is_output()) continue;
        return Fail(*step.node, " has no output ", i);
      }
      state_.bound[pattern_.id(output)] = real;
    }
  }
  for (auto& [name, attribute] : step.attributes) {
    const auto [it, inserted] = state_.attributes.emplace(name, attribute);
    if (!inserted && !SameAttribute(it->second, attribute)) {
      return Fail("\"@", name, "\" would have two values");
    }
  }
  state_.todo.insert(state_.todo.end(), step.todo.begin(), step.todo.end());
  state_.deferred.insert(state_.deferred.end(), step.deferred.begin(), step.deferred.end());
  state_.views.insert(state_.views.end(), step.views.begin(), step.views.end());
  return true;
}

bool MatchSolver::Finish() {
  for (int output : pattern_.outputs) {
    if (state_.bound[output] != nullptr) continue;
    const std::vector<Obligation> candidates = CandidatesFor(output);
    if (candidates.empty()) {
      return Fail("nothing in the graph computes pattern output ", *pattern_[output].value);
    }
    const MatchState before = state_;
    for (const Obligation& candidate : candidates) {
      state_.todo.push_back(candidate);
      if (Solve()) return true;
      if (gave_up_) return false;
      state_ = before;
    }
    return false;
  }
  return Accept();
}

bool MatchSolver::Accept() {
  if (++accepts_ > kMaxAccepts) {
    gave_up_ = true;
    return false;
  }
  absl::Status status = ProveDeferred(pattern_, scope_, state_);
  if (!status.ok()) return Fail(StdView(status.message()));
  status = CheckInnerValues(pattern_, state_);
  if (!status.ok()) return Fail(StdView(status.message()));
  Match match;
  match.pattern = pattern_.name;
  match.graph = scope_.graph;
  match.contents = scope_.contents;
  match.attributes = state_.attributes;
  match.dims = state_.dims;
  for (int i = 0; i < static_cast<int>(pattern_.values.size()); ++i) {
    if (state_.bound[i] != nullptr)
      match.values.emplace(pattern_[i].value->name(), state_.bound[i]);
  }
  for (const auto& [pattern_node, node] : state_.nodes) match.nodes.push_back(node);
  for (const CrossedView& view : state_.views) {
    if (std::find(match.nodes.begin(), match.nodes.end(), view.node) == match.nodes.end()) {
      match.nodes.push_back(view.node);
    }
  }
  std::sort(match.nodes.begin(), match.nodes.end(), [this](const Node* a, const Node* b) {
    return scope_.index->position(a) < scope_.index->position(b);
  });
  status = accept_(match);
  if (status.ok()) return true;
  // A refusal of a whole match is nearer than any partial one.
  result_.matched_nodes = state_.depth();
  result_.reason = std::string(status.message());
  if (scope_.explain) result_.nodes.assign(state_.nodes.begin(), state_.nodes.end());
  return false;
}

}  // namespace pagefuse
