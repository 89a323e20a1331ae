// SPDX-License-Identifier: Apache-2.0
// The numbers of the exponential in double that gives a logit its integer weight. The CPU and
// devices take the same, as their weights have the same bits.
#pragma once

namespace pagefuse {

// A local constant of functions: device code reads no array of a namespace.
struct ExpNumbers {
  static constexpr int kWeightBits = 44;  // the weight of the largest logit is 2^44
  static constexpr int kTerms = 14;

  // e^r for |r| <= ln 2 / 2 by its series, r^13 / 13! first, whose rest is below 2^-57 of it.
  double one_by_factorial[kTerms] = {1.0 / 6227020800,
                                     1.0 / 479001600,
                                     1.0 / 39916800,
                                     1.0 / 3628800,
                                     1.0 / 362880,
                                     1.0 / 40320,
                                     1.0 / 5040,
                                     1.0 / 720,
                                     1.0 / 120,
                                     1.0 / 24,
                                     1.0 / 6,
                                     1.0 / 2,
                                     1.0,
                                     1.0};
  // e^x = 2^k e^(x - k ln 2).
  double one_by_ln2 = 0x1.71547652b82fep0;
  double minus_ln2 = -0x1.62e42fefa39efp-1, minus_ln2_rest = -0x1.abc9e3b39803fp-56;
  // At this size a double has no fraction: a sum with it rounds, and its lowest bits are k + 44.
  double round = 0x1.8p52 + kWeightBits;
  double least = -40.0;  // far below the last weight that is not 0, which e^-31.2 has
};

}  // namespace pagefuse
