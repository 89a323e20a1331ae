// SPDX-License-Identifier: Apache-2.0
// Evaluates the values of a pattern once its inputs are bound. It is private to matcher*.cc.
#pragma once

#include <deque>

#include "absl/container/flat_hash_map.h"

#include "pagefuse/passes/rewrite/match_state.h"

namespace pagefuse {

// Shape inference and folding of the pattern's own nodes on the shapes and constants of the graph.
class PatternEvaluator {
 public:
  PatternEvaluator(const Pattern& pattern, const MatchScope& scope, const MatchState& state)
      : pattern_(pattern), scope_(scope), state_(state) {}

  // What the pattern's node computes, even where a graph value is bound: what that value ought to
  // be.
  ShapeContext::Known Expected(int id);

 private:
  ShapeContext::Known Operand(int id);
  ShapeContext::Known FromAttribute(const PatternValue& value);
  // Computes the output where all inputs are known as numbers.
  void Fold(const Node& node, int64_t opset, const std::vector<ShapeContext::Known>& inputs,
            int output, ShapeContext::Known& result);

  const Pattern& pattern_;
  const MatchScope& scope_;
  const MatchState& state_;
  absl::flat_hash_map<int, ShapeContext::Known> computed_;
  std::deque<Tensor> tensors_;  // that Known::tensor points to
};

}  // namespace pagefuse
