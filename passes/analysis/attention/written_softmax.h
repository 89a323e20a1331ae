// SPDX-License-Identifier: Apache-2.0
// A softmax over keys that is written out: powers of shifted scores, and their sum, by which the
// powers are divided, or their product with the values.
#pragma once

#include <optional>

#include "pagefuse/passes/analysis/indexing/indexing_analysis.h"

namespace pagefuse {

// What goes with one row of scores: exp(x - most) and sum exp(x - most) of the same x and most,
// which may be nothing.
// Guards for rows in which no key is visible are looked through: `most` may be 0 there, the sum 1.
class WrittenSoftmax {
 public:
  explicit WrittenSoftmax(IndexingAnalysis& reader) : reader_(reader) {}

  // exp(x - most) with the largest x, or exp(x): false if the element is nothing of the kind.
  bool ReadPower(const Element& power, const IndexSymbolPtr& key);
  // exp(log of the softmax): a power that no sum divides.
  bool ReadLogProbability(const Element& power, const IndexSymbolPtr& key);
  // The sum of these powers, with a sink or without.
  bool ReadSum(const Element& sum);
  // log (the sum) + most, whatever stands for it in rows that see no key.
  bool ReadLogSum(const Element& element);
  // True only where no key is visible, as far as these powers tell.
  bool IsEmptyRow(const Element& condition);
  // The opposite.
  bool IsFullRow(const Element& condition);

  // The scores at the key, not yet followed to where they come from.
  const Element& scores() const { return scores_; }
  int axis() const { return axis_; }
  // The sum that ReadSum took, without a guard.
  const std::optional<Element>& sum() const { return sum_; }
  // What a log-sum-exp is in rows that see no key; none: nothing stands for it.
  std::optional<double> empty() const { return empty_; }
  // A score without a key that the sum holds.
  const std::optional<Element>& sink() const { return sink_; }

 private:
  // Where (empty row, number, x) and its opposite: x.
  std::optional<Element> BehindGuard(const Element& choice);
  bool ReadMost(const Element& most);
  bool ReadSinkPower(const Element& power);
  bool IsLogOfSum(const Element& log);
  std::optional<int> ReducedAxis(const Element& element) const;

  IndexingAnalysis& reader_;
  Element power_, scores_;
  Element most_;                // no value: powers are of the scores themselves
  std::optional<Element> sum_;  // without a guard
  std::optional<double> empty_;
  int axis_ = -1;
  std::optional<Element> sink_;
};

}  // namespace pagefuse
