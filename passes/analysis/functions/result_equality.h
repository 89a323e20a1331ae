// SPDX-License-Identifier: Apache-2.0
// Decides whether two functions gave the same results, with the tolerance that formats and the
// order of a sum leave open.
#pragma once

#include "absl/status/status.h"

#include "pagefuse/ir/tensor/tensor.h"

namespace pagefuse {

struct ResultRule {
  // Of the elements that are not those of `before`, how many may differ, spread over the places of
  // a row: the rounding of sums taken in another order. 0: all are computed exactly.
  double share = 0;
  // Rows that may differ as a whole: an exponent that a logarithm rounds the other way.
  double rows = 0;
  // Relative difference of floats: products in another order.
  double relative = 0;
  // Difference of floats beside the largest of their row: differences of numbers that nearly agree.
  double of_largest = 0;
  // Of all elements, how many may be other numbers, however near: results that are rounded to few
  // bits at the end.
  double unequal = 1;
  bool packed_codes = false;  // bytes hold two 4-bit codes
  bool nan = false;           // where the function gives a NaN, any number is as good
};

// OK, or FailedPrecondition with the first difference. `before` is the cache that both wrote into,
// or undefined. A zero code's sign is left open.
absl::Status CompareResults(const ResultRule& rule, const Tensor& expected, const Tensor& found,
                            const Tensor& before);

}  // namespace pagefuse
