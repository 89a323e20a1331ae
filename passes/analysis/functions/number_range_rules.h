// What each op makes of the ranges of its inputs. It is private to number_ranges.cc.
#pragma once

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

// Null for an op of which nothing is known.
RangeRule FindRangeRule(const Node& node);

}  // namespace pagefuse
