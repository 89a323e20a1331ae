// SPDX-License-Identifier: Apache-2.0
// What each op makes of the ranges of its inputs. It is private to number_ranges.cc.
#pragma once

#include <string>

#include "absl/container/flat_hash_map.h"

#include "pagefuse/passes/analysis/functions/number_ranges.h"

namespace pagefuse {

// A node as a rule sees it.
struct RangeNode {
  NumberRanges& ranges;
  const Node& node;
  int output = 0;

  NumberRange in(int i) const { return ranges.Input(node, i); }
  // The length of an axis of input `i`, counted from the last one; of a symbol the longest there is.
  double Length(int i, int from_last) const;
};

using RangeRule = NumberRange (*)(const RangeNode& node);

// By domain and name, "com.microsoft.Gelu".
using RangeRules = absl::flat_hash_map<std::string, RangeRule>;

// Null for an op of which nothing is known.
RangeRule FindRangeRule(const Node& node);
// Those of products, norms, attention and weights of few bits; FindRangeRule knows the others, too.
const RangeRules& LayerRangeRules();

// As many numbers as are ever summed.
inline constexpr double kLongestSum = 1 << 23;
// Probabilities: what they weigh is not larger than the largest.
bool AreWeights(const Value* value);
// x times a number from 0 to 1 that falls to 0 where x does.
NumberRange Gated(const NumberRange& x);

}  // namespace pagefuse
