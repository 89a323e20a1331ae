// SPDX-License-Identifier: Apache-2.0
// The finished form of a grammar: automata over bytes, one a rule, that call each other. What they
// read is told by stacks of calls (grammar_stacks.h).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/text/grammar/grammar_budget.h"
#include "pagefuse/text/grammar/rule_nfa.h"

namespace pagefuse {

class Automaton {
 public:
  struct Edge {
    uint32_t to;
    uint8_t low;
    uint8_t high;
    Counted counted;
  };
  struct Call {
    uint32_t callee;
    uint32_t to;  // where it returns to
  };
  struct Rule {
    uint32_t first = 0;  // its states are [first, end); it begins in the first one
    uint32_t end = 0;
    uint32_t rank = 0;  // larger than those of rules that call it before they read a byte
    bool has_calls = false;
  };
  struct State {
    uint32_t edges = 0;  // where what belongs to it begins
    uint32_t empties = 0;
    uint32_t calls = 0;
    uint32_t rule = 0;
    bool accepts = false;
  };

  // Every state can be reached, and can reach the end. Calls of rules that may read nothing have an
  // empty edge beside them, so that a call need not return where it began.
  // InvalidArgument: no text fits, or a rule calls itself before it reads anything.
  static absl::StatusOr<Automaton> Of(RuleSet set, const GrammarBudget& budget);
  // The rules again, as parts of a larger set, without the first `shared` of them, which both have:
  // they are appended to `set`. The number of the one that begins.
  uint32_t AppendTo(RuleSet& set, uint32_t shared) const;

  uint32_t size() const { return static_cast<uint32_t>(states_.size() - 1); }
  const std::vector<Rule>& rules() const { return rules_; }
  const Rule& rule(uint32_t index) const { return rules_[index]; }
  const Callee& callee(uint32_t index) const { return callees_[index]; }
  uint32_t start() const { return start_; }  // a callee

  uint32_t rule_of(uint32_t state) const { return states_[state].rule; }
  bool accepts(uint32_t state) const { return states_[state].accepts; }
  bool only_accepts(uint32_t state) const;
  std::span<const Edge> edges(uint32_t state) const {
    return std::span(edges_).subspan(states_[state].edges,
                                     states_[state + 1].edges - states_[state].edges);
  }
  std::span<const uint32_t> empties(uint32_t state) const {
    return std::span(empties_).subspan(states_[state].empties,
                                       states_[state + 1].empties - states_[state].empties);
  }
  std::span<const Call> calls(uint32_t state) const {
    return std::span(calls_).subspan(states_[state].calls,
                                     states_[state + 1].calls - states_[state].calls);
  }

  // Bytes of one class lead to the same states everywhere.
  uint8_t byte_class(uint8_t byte) const { return byte_classes_[byte]; }
  int num_byte_classes() const { return num_byte_classes_; }

 private:
  friend class AutomatonMaker;

  std::vector<State> states_;  // and one behind the last, where its edges end
  std::vector<Edge> edges_;
  std::vector<uint32_t> empties_;
  std::vector<Call> calls_;
  std::vector<Rule> rules_;
  std::vector<Callee> callees_;
  uint32_t start_ = 0;
  std::array<uint8_t, 256> byte_classes_ = {};
  int num_byte_classes_ = 0;
};

}  // namespace pagefuse
