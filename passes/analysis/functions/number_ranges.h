// SPDX-License-Identifier: Apache-2.0
// Which numbers the values of a graph hold, as far as the graph proves it: from constants, norms,
// sigmoids and softmaxes on through products and sums. Rewrites that change what becomes of NaN, of
// infinities or of signs ask here whether there are any.
//
// Taken for granted: inputs of the graph, and constants of more than 2^16 elements, which are
// sampled, hold finite numbers below 2^16, also where their bits are kept as bytes; what a graph
// joins to a past and gives as its present is what the past was computed by; and numbers do not
// overflow that are estimated to lie 64 times below the largest of their type.
#pragma once

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"

#include "pagefuse/ir/graph/graph.h"
#include "pagefuse/ops/infer/infer.h"
#include "pagefuse/passes/analysis/functions/number_range.h"

namespace pagefuse {

// Reads the ranges of one graph while nothing changes it.
class NumberRanges {
 public:
  explicit NumberRanges(const SymbolicContents& contents) : contents_(contents) {}

  // Floats from outside.
  static NumberRange OfGiven();
  NumberRange Of(const Value* value);
  // What is said of a value counts from here on, for what was not asked before.
  void TakeAs(const Value* value, const NumberRange& range) { known_[value] = range; }
  // Of input `i`; what is omitted is 0.
  NumberRange Input(const Node& node, int i);
  // True if the value is 0, above it or NaN by the ops that compute it, whatever is above them.
  bool NeverNegative(const Value* value, int depth = 0) const;

  // Where infinities or NaN of the value may come from: a constant, or what is computed of finite
  // numbers. Null where it has none, and where they come from an op of which nothing is known.
  const Value* CauseOf(const Value* value);

  const SymbolicContents& contents() const { return contents_; }

 private:
  const Value* CauseOf(const Value* value, absl::flat_hash_set<const Value*>& seen);
  NumberRange Read(const Value& value);

  const SymbolicContents& contents_;
  absl::flat_hash_map<const Value*, NumberRange> known_;
  int depth_ = 0;
};

// Scores of attention: scaled products of `count` numbers of queries and keys, under a soft cap
// unless that is 0.
struct ScoreScale {
  double count = 1, scale = 1, softcap = 0;
};
NumberRange ScoresOf(const NumberRange& queries, const NumberRange& keys, const ScoreScale& scale);

// The number from which on what is added to scores, or takes their place, hides them beside others in
// a softmax: e to the difference is 0. Scores count as no larger than proved, nor than 64 times their
// estimated size.
double HidingNumber(const NumberRange& scores);

}  // namespace pagefuse
