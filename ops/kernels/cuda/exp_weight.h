// SPDX-License-Identifier: Apache-2.0
// The integer weight of a logit, with the bits of ops/kernels/rows/exp_weights_hwy.h. Device code: for .cu files.
#pragma once

#include <cstdint>

#include "pagefuse/ops/kernels/numeric/exp_numbers.h"

namespace pagefuse::cuda {

inline constexpr int kWeightBits = ExpNumbers::kWeightBits;

struct WeightScale {
  double largest, inverse_temperature;
};

// e^r for |r| <= ln 2 / 2.
__device__ inline double SmallExp(double r) {
  constexpr ExpNumbers kNumbers;
  double sum = kNumbers.one_by_factorial[0];
#pragma unroll
  for (int i = 1; i < ExpNumbers::kTerms; ++i) sum = fma(sum, r, kNumbers.one_by_factorial[i]);
  return sum;
}

__device__ inline uint64_t ExpWeight(float logit, const WeightScale& scale) {
  constexpr ExpNumbers kNumbers;
  const double x = __dmul_rn(__dsub_rn(logit, scale.largest), scale.inverse_temperature);
  if (!(x > kNumbers.least)) return 0;
  const double shifted = fma(x, kNumbers.one_by_ln2, kNumbers.round);
  const double k = __dsub_rn(shifted, kNumbers.round);
  double r = fma(k, kNumbers.minus_ln2, x);
  r = fma(k, kNumbers.minus_ln2_rest, r);
  const auto exponent = static_cast<uint64_t>(__double_as_longlong(shifted)) << 52;
  const uint64_t bits = static_cast<uint64_t>(__double_as_longlong(SmallExp(r))) + exponent;
  const double rounded = __dadd_rn(__longlong_as_double(static_cast<int64_t>(bits)), 0x1p52);
  return static_cast<uint64_t>(__double_as_longlong(rounded)) & ((uint64_t{1} << 52) - 1);
}

}  // namespace pagefuse::cuda
