// SPDX-License-Identifier: Apache-2.0
// The subset construction over bytes and calls.
#include <algorithm>
#include <map>
#include <utility>

#include "absl/container/flat_hash_map.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/text/grammar/rule_graph.h"

namespace pagefuse {
namespace {

using RuleStates = std::vector<uint32_t>;

class RuleSubsets {
 public:
  RuleSubsets(const RuleGraph& rule, const GrammarBudget& budget)
      : rule_(rule), budget_(budget), seen_(rule.states.size()) {}

  absl::StatusOr<std::optional<RuleGraph>> Run() {
    // A rule that grows more is run as it is, in several states at once.
    const size_t most = 2 * rule_.states.size() + 64;
    made_.place = rule_.place;
    Add({0});
    for (size_t i = 0; i < sets_.size(); ++i) {
      if (sets_.size() > most) return std::optional<RuleGraph>();
      if (i % 64 == 0) PF_RETURN_IF_ERROR(budget_.Check(sets_.size()));
      AddEdges(i);
      AddCalls(i);
    }
    return std::optional<RuleGraph>(std::move(made_));
  }

 private:
  RuleStates Closed(const RuleStates& states) {
    RuleStates all;
    const auto see = [&](uint32_t state) {
      if (!seen_[state]) all.push_back(state);
      seen_[state] = true;
    };
    for (const uint32_t state : states) see(state);
    for (size_t i = 0; i < all.size(); ++i) {
      for (const uint32_t to : rule_.states[all[i]].empties) see(to);
    }
    for (const uint32_t state : all) seen_[state] = false;
    // A state with nothing but empty edges says nothing: sets that differ in such are equal.
    std::erase_if(all, [&](uint32_t state) {
      const RuleGraph::State& s = rule_.states[state];
      return s.edges.empty() && s.calls.empty() && !s.accepts;
    });
    std::sort(all.begin(), all.end());
    return all;
  }

  uint32_t Add(const RuleStates& states) {
    RuleStates set = Closed(states);
    const auto [place, added] = ids_.try_emplace(set, static_cast<uint32_t>(sets_.size()));
    if (!added) return place->second;
    RuleGraph::State state;
    for (const uint32_t member : set) state.accepts |= rule_.states[member].accepts;
    made_.states.push_back(std::move(state));
    sets_.push_back(std::move(set));
    return static_cast<uint32_t>(sets_.size() - 1);
  }

  // Cuts the bytes at all ends of ranges: within a part, all bytes go to the same states.
  void AddEdges(size_t from) {
    std::vector<int> cuts;
    for (const uint32_t state : sets_[from]) {
      for (const Automaton::Edge& edge : rule_.states[state].edges) {
        cuts.push_back(edge.low);
        cuts.push_back(edge.high + 1);
      }
    }
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    std::vector<RuleStates> targets(cuts.size());
    for (const uint32_t state : sets_[from]) {
      for (const Automaton::Edge& edge : rule_.states[state].edges) {
        auto part = std::lower_bound(cuts.begin(), cuts.end(), int{edge.low}) - cuts.begin();
        for (; cuts[part] <= edge.high; ++part) targets[part].push_back(edge.to);
      }
    }
    std::vector<Automaton::Edge> edges;
    for (size_t part = 0; part + 1 < cuts.size(); ++part) {
      if (targets[part].empty()) continue;
      const uint32_t to = Add(targets[part]);
      const auto last = static_cast<uint8_t>(cuts[part + 1] - 1);
      if (!edges.empty() && edges.back().to == to && edges.back().high + 1 == cuts[part]) {
        edges.back().high = last;
      } else {
        edges.push_back({to, static_cast<uint8_t>(cuts[part]), last, Counted::kNo});
      }
    }
    made_.states[from].edges = std::move(edges);
  }

  void AddCalls(size_t from) {
    std::map<uint32_t, RuleStates> targets;
    for (const uint32_t state : sets_[from]) {
      for (const Automaton::Call& call : rule_.states[state].calls) {
        targets[call.callee].push_back(call.to);
      }
    }
    for (const auto& [callee, states] : targets) {
      const uint32_t to = Add(states);
      made_.states[from].calls.push_back({callee, to});
    }
  }

  const RuleGraph& rule_;
  const GrammarBudget& budget_;
  std::vector<bool> seen_;
  absl::flat_hash_map<RuleStates, uint32_t> ids_;
  std::vector<RuleStates> sets_;
  RuleGraph made_;
};

}  // namespace

absl::StatusOr<std::optional<RuleGraph>> Deterministic(const RuleGraph& rule,
                                                       const GrammarBudget& budget) {
  return RuleSubsets(rule, budget).Run();
}

}  // namespace pagefuse
