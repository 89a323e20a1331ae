// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/text/grammar/automaton.h"

#include <algorithm>
#include <bitset>
#include <optional>
#include <string_view>
#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/text/grammar/rule_graph.h"

namespace pagefuse {

class AutomatonMaker {
 public:
  AutomatonMaker(RuleSet set, const GrammarBudget& budget)
      : set_(std::move(set)), budget_(budget) {}

  absl::StatusOr<Automaton> Run() {
    const uint32_t start = set_.CalleeOf(set_.start);
    for (const RuleNfa& rule : set_.rules) rules_.push_back(RuleGraph::Of(rule));
    callees_of_.resize(rules_.size());
    for (uint32_t i = 0; i < set_.callees.size(); ++i) {
      callees_of_[set_.callees[i].rule].push_back(i);
    }
    PF_RETURN_IF_ERROR(CheckSize());
    PF_RETURN_IF_ERROR(RemoveEndless());
    PF_RETURN_IF_ERROR(AddEmptyCalls());
    PF_RETURN_IF_ERROR(RankRules());
    for (RuleGraph& rule : rules_) {
      if (rule.is_final) continue;
      PF_ASSIGN_OR_RETURN(std::optional<RuleGraph> made, Deterministic(rule, budget_));
      if (made) rule = *std::move(made);
    }
    PF_RETURN_IF_ERROR(CheckSize());
    Flatten();
    made_.start_ = start;
    made_.callees_ = std::move(set_.callees);
    FindByteClasses();
    return std::move(made_);
  }

 private:
  absl::Status CheckSize() const {
    size_t states = 0;
    for (const RuleGraph& rule : rules_) states += rule.states.size();
    return budget_.Check(states);
  }
  absl::Status InRule(const RuleGraph& rule, std::string_view message) const {
    return absl::InvalidArgumentError(
        StrCat(rule.place.empty() ? std::string("the grammar") : rule.place, ": ", message));
  }

  // Callees of rules for which `holds` is true: those that reach their end over such callees only.
  absl::StatusOr<std::vector<bool>> CalleesThatEnd(bool reads) const {
    std::vector<bool> rule_ends(rules_.size()), ends(set_.callees.size());
    for (bool changed = true; changed;) {
      changed = false;
      // Backwards: rules are called, as a rule, by those before them.
      for (size_t i = rules_.size(); i-- > 0;) {
        if (rule_ends[i] || !rules_[i].ReachesEnd(ends, reads)) continue;
        rule_ends[i] = changed = true;
        for (const uint32_t callee : callees_of_[i]) ends[callee] = true;
      }
      PF_RETURN_IF_ERROR(budget_.Check(0));
    }
    return ends;
  }

  // Rules that never end fit no text, and what calls them does not either.
  absl::Status RemoveEndless() {
    PF_ASSIGN_OR_RETURN(const std::vector<bool> ends, CalleesThatEnd(/*reads=*/true));
    for (RuleGraph& rule : rules_) rule.Trim(ends);
    const RuleGraph& first = rules_[set_.start];
    if (first.ReachesEnd(ends, /*reads=*/true)) return absl::OkStatus();
    return InRule(first, "expected that some text fits, got a contradiction");
  }

  absl::Status AddEmptyCalls() {
    PF_ASSIGN_OR_RETURN(nothing_read_, CalleesThatEnd(/*reads=*/false));
    for (RuleGraph& rule : rules_) {
      for (RuleGraph::State& state : rule.states) {
        for (const Automaton::Call& call : state.calls) {
          if (nothing_read_[call.callee]) state.empties.push_back(call.to);
        }
      }
    }
    return absl::OkStatus();
  }

  // The rules that a rule calls before it reads a byte.
  std::vector<uint32_t> FirstCalls(uint32_t rule) const {
    const std::vector<bool> reached = rules_[rule].Reachable(nothing_read_, /*reads=*/false);
    std::vector<uint32_t> called;
    for (size_t i = 0; i < reached.size(); ++i) {
      if (!reached[i]) continue;
      for (const Automaton::Call& call : rules_[rule].states[i].calls) {
        called.push_back(set_.callees[call.callee].rule);
      }
    }
    std::sort(called.begin(), called.end());
    called.erase(std::unique(called.begin(), called.end()), called.end());
    return called;
  }

  // Orders rules so that each stands behind those that call it first; a depth-first search, whose
  // path is kept by hand, since a schema may be long.
  absl::Status RankRules() {
    made_.rules_.resize(rules_.size());
    enum Mark : uint8_t { kNew, kOnPath, kDone };
    std::vector<Mark> mark(rules_.size(), kNew);
    auto rank = static_cast<uint32_t>(rules_.size());
    struct Step {
      uint32_t rule;
      std::vector<uint32_t> calls;
    };
    std::vector<Step> path;
    for (uint32_t first = 0; first < rules_.size(); ++first) {
      if (mark[first] == kNew) path.push_back({first, FirstCalls(first)});
      mark[first] = mark[first] == kNew ? kOnPath : mark[first];
      while (!path.empty()) {
        Step& step = path.back();
        if (step.calls.empty()) {
          mark[step.rule] = kDone;
          made_.rules_[step.rule].rank = --rank;
          path.pop_back();
          continue;
        }
        const uint32_t next = step.calls.back();
        step.calls.pop_back();
        if (mark[next] == kOnPath) {
          return InRule(rules_[next],
                        "expected that it refers to itself within a list or an object "
                        "only, got a reference without anything around it");
        }
        if (mark[next] == kNew) path.push_back({next, FirstCalls(next)});
        mark[next] = mark[next] == kNew ? kOnPath : mark[next];
      }
    }
    return absl::OkStatus();
  }

  void Flatten() {
    for (size_t i = 0; i < rules_.size(); ++i) {
      const auto first = static_cast<uint32_t>(made_.states_.size());
      Automaton::Rule& rule = made_.rules_[i];
      rule.first = first;
      for (const RuleGraph::State& state : rules_[i].states) {
        AddState(static_cast<uint32_t>(i), state.accepts);
        for (Automaton::Edge edge : state.edges) {
          edge.to += first;
          made_.edges_.push_back(edge);
        }
        for (const uint32_t to : state.empties) made_.empties_.push_back(first + to);
        for (const Automaton::Call& call : state.calls) {
          made_.calls_.push_back({call.callee, first + call.to});
          rule.has_calls = true;
        }
      }
      rule.end = static_cast<uint32_t>(made_.states_.size());
    }
    AddState(0, false);
  }
  void AddState(uint32_t rule, bool accepts) {
    made_.states_.push_back({.edges = static_cast<uint32_t>(made_.edges_.size()),
                             .empties = static_cast<uint32_t>(made_.empties_.size()),
                             .calls = static_cast<uint32_t>(made_.calls_.size()),
                             .rule = rule,
                             .accepts = accepts});
  }

  void FindByteClasses() {
    std::bitset<257> begins;
    for (const Automaton::Edge& edge : made_.edges_) {
      begins.set(edge.low);
      begins.set(edge.high + 1);
    }
    int classes = 0;
    for (int byte = 0; byte < 256; ++byte) {
      if (byte > 0 && begins.test(byte)) ++classes;
      made_.byte_classes_[byte] = static_cast<uint8_t>(classes);
    }
    made_.num_byte_classes_ = classes + 1;
  }

  RuleSet set_;
  const GrammarBudget& budget_;
  std::vector<RuleGraph> rules_;
  std::vector<std::vector<uint32_t>> callees_of_;  // of each rule
  std::vector<bool> nothing_read_;                 // callees that may read nothing
  Automaton made_;
};

absl::StatusOr<Automaton> Automaton::Of(RuleSet set, const GrammarBudget& budget) {
  return AutomatonMaker(std::move(set), budget).Run();
}

uint32_t Automaton::AppendTo(RuleSet& set, uint32_t shared) const {
  const auto base = static_cast<uint32_t>(set.rules.size());
  const auto moved = [&](uint32_t rule) { return rule < shared ? rule : rule - shared + base; };
  for (uint32_t i = shared; i < rules_.size(); ++i) {
    RuleNfa nfa;
    const uint32_t first = rules_[i].first;
    while (nfa.size() < rules_[i].end - first) nfa.AddState();
    for (uint32_t state = first; state < rules_[i].end; ++state) {
      if (accepts(state)) nfa.Accept(state - first);
      for (const Edge& edge : edges(state)) {
        nfa.AddBytes(state - first, {edge.low, edge.high}, edge.to - first, edge.counted);
      }
      for (const uint32_t to : empties(state)) nfa.AddEmpty(state - first, to - first);
      for (const Call& call : calls(state)) {
        Callee called = callees_[call.callee];
        called.rule = moved(called.rule);
        nfa.AddCall(state - first, set.CalleeOf(called), call.to - first);
      }
    }
    nfa.MarkFinal();
    set.Add(std::move(nfa));
  }
  return moved(callees_[start_].rule);
}

bool Automaton::only_accepts(uint32_t state) const {
  return accepts(state) && edges(state).empty() && empties(state).empty() && calls(state).empty();
}

}  // namespace pagefuse
