// SPDX-License-Identifier: Apache-2.0
// The search of the matcher: obligations, the ways to meet each of them, and backtracking over
// them. It is private to matcher*.cc.
#pragma once

#include <functional>
#include <vector>

#include "pagefuse/passes/edit/match_failure.h"
#include "pagefuse/passes/rewrite/match_state.h"

namespace pagefuse {

class MatchSolver {
 public:
  MatchSolver(const Pattern& pattern, const MatchScope& scope,
              const std::function<absl::Status(Match&)>& accept)
      : pattern_(pattern), scope_(scope), accept_(accept) {}

  MatchResult Run(Value* anchor);

 private:
  // Meets all obligations, then the outputs that none of them reaches, then asks `accept`.
  bool Solve();
  bool Apply(Step step);
  bool Finish();
  bool Accept();

  // --- the ways to meet an obligation (matcher_steps.cc); none means that it cannot be met, and
  // why is in result_ ---
  std::vector<Step> StepsFor(const Obligation& claim);
  std::vector<Step> InputSteps(const Obligation& claim);
  std::vector<Step> ConstantSteps(const Obligation& claim);
  std::vector<Step> AttributeSteps(const Obligation& claim);
  std::vector<Step> DerivedSteps(const Obligation& claim);
  std::vector<Step> ViewSteps(const Obligation& claim);
  std::vector<Step> CastSteps(const Obligation& claim);
  std::vector<Step> ExpandSteps(const Obligation& claim);
  std::vector<Step> NodeSteps(const Obligation& claim);
  // The step that pairs two nodes, without its operands; none if their attributes differ.
  std::vector<Step> PairSteps(const Node& pattern_node, Node* node);
  // Adds the obligations of the operands; returns how many of them cannot hold, -1 if an operand is
  // too many.
  int AddOperands(const Node& pattern_node, Node* node, bool exchanged, Step& step);
  bool HasComputedBounds(const Node& slice) const;
  bool WidensIndex(const Node& cast, const Value& value) const;
  bool BindDeclaredType(const PatternValue& pattern, const Value& value);

  // --- outputs that the anchor does not reach (matcher_outputs.cc) ---
  // Obligations of which one has to hold; empty: no candidate.
  std::vector<Obligation> CandidatesFor(int output) const;
  std::vector<Obligation> ReadersCandidates(const Node& pattern_node, Value* bound) const;

  // Quickly false where an obligation can certainly not be met.
  bool Plausible(int pattern, const Value* value) const;
  // Follows Reshape, Squeeze, ... upwards.
  int PatternViewSource(int pattern) const;
  const Node* PatternProducer(int pattern) const { return pattern_[pattern].value->producer(); }

  // Notes why the search ends here, if that is asked for and no attempt got further; false. Values
  // are told by their names, nodes by what they are called. The text is the costly part of a
  // failure, so it is made only where it is kept.
  template <typename... Parts>
  bool Fail(const Parts&... parts) {
    const int depth = state_.depth();
    const bool kept = result_.reason.empty() || depth > result_.matched_nodes;
    if (!scope_.explain || !kept) return false;
    result_.matched_nodes = depth;
    result_.reason = StrCat(Told(parts)...);
    result_.nodes.assign(state_.nodes.begin(), state_.nodes.end());
    return false;
  }
  template <typename... Parts>
  std::vector<Step> None(const Parts&... parts) {
    Fail(parts...);
    return {};
  }
  template <typename... Parts>
  std::vector<Step> Unlike(const Value& value, const Parts&... wanted) {
    return None(value, ": expected ", wanted..., ", got ", OriginOf(value));
  }
  // "Mul", "a constant", "an input": what a value comes from, to be told.
  std::string_view OriginOf(const Value& value) const {
    const Node* producer = value.producer();
    if (producer != nullptr && producer->graph() == scope_.graph) return producer->op_type();
    return value.initializer() != nullptr ? "a constant" : "an input";
  }

  static constexpr int kMaxSteps = 20000;
  static constexpr int kMaxAccepts = 16;

  const Pattern& pattern_;
  const MatchScope& scope_;
  const std::function<absl::Status(Match&)>& accept_;
  MatchState state_;
  MatchResult result_;
  int steps_ = 0;
  int accepts_ = 0;
  bool gave_up_ = false;
};

}  // namespace pagefuse
