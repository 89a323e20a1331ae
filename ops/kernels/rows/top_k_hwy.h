// SPDX-License-Identifier: Apache-2.0
// The elements of a row that may be among its few best, by vectors.
#pragma once

#include <cstdint>

namespace pagefuse::onnx_ops {

inline constexpr int64_t kRankedElements = 256;  // that are looked at together
inline constexpr int64_t kMostOfRanked = 32;     // the best of them that can be asked for

// Which elements: the `count` best, by rank, where their rank is `least` or better.
struct RankRule {
  bool largest;
  int64_t count;   // at most kMostOfRanked
  uint32_t least;  // as RankOfFloat gives it
};

// Higher is better. 0 and -0 are equal, NaN counts as larger than every number.
uint32_t RankOfFloat(float x, bool largest);

struct RankedElements {
  uint32_t ranks[kRankedElements + 16];    // room for a vector behind the last
  uint32_t indices[kRankedElements + 16];  // of elements, in order
};

// Writes those of x[0, n) that the rule takes, n at most kRankedElements, and perhaps a few more of
// at least its rank; returns how many.
int64_t FewRanked(const float* x, int64_t n, const RankRule& rule, RankedElements& to);

}  // namespace pagefuse::onnx_ops
