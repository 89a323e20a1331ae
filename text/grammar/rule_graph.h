// SPDX-License-Identifier: Apache-2.0
// A rule with the edges of each state at hand, and what is done with it on the way to an Automaton.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/text/grammar/automaton.h"
#include "pagefuse/text/grammar/grammar_budget.h"
#include "pagefuse/text/grammar/rule_nfa.h"

namespace pagefuse {

struct RuleGraph {
  struct State {
    std::vector<Automaton::Edge> edges;
    std::vector<uint32_t> empties;
    std::vector<Automaton::Call> calls;
    bool accepts = false;
  };
  std::vector<State> states;
  std::string place;
  bool is_final = false;

  static RuleGraph Of(const RuleNfa& rule);

  // States that can be reached from the first one, calls only those that `may_call` has (by callee).
  // `reads`: whether byte edges count.
  std::vector<bool> Reachable(const std::vector<bool>& may_call, bool reads) const;
  bool ReachesEnd(const std::vector<bool>& may_call, bool reads) const;
  // Removes what is not on a way to the end. The first state stays in any case.
  void Trim(const std::vector<bool>& may_call);
};

// The same rule without empty edges and with one edge at most for a byte and for a callee; nothing
// if that takes many more states than it has.
absl::StatusOr<std::optional<RuleGraph>> Deterministic(const RuleGraph& rule,
                                                       const GrammarBudget& budget);

}  // namespace pagefuse
