// SPDX-License-Identifier: Apache-2.0
// The integer weight of a logit, with the bits of ops/kernels/rows/exp_weights_hwy.h. Device code: for .cu files.
#pragma once

#include <cstdint>

namespace pagefuse::cuda {

inline constexpr int kWeightBits = 44;

struct WeightScale {
  double largest, inverse_temperature;
};

// e^r for |r| <= ln 2 / 2.
__device__ inline double SmallExp(double r) {
  constexpr double kOneByFactorial[] = {1.0 / 479001600,
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
  double sum = 1.0 / 6227020800;
#pragma unroll
  for (const double next : kOneByFactorial) sum = fma(sum, r, next);
  return sum;
}

__device__ inline uint64_t ExpWeight(float logit, const WeightScale& scale) {
  const double x = __dmul_rn(__dsub_rn(logit, scale.largest), scale.inverse_temperature);
  // Far below the last weight that is not 0.
  if (!(x > -40.0)) return 0;
  constexpr double kRound = 0x1.8p52 + kWeightBits;
  const double shifted = fma(x, 0x1.71547652b82fep0, kRound);
  const double k = __dsub_rn(shifted, kRound);
  double r = fma(k, -0x1.62e42fefa39efp-1, x);
  r = fma(k, -0x1.abc9e3b39803fp-56, r);
  const auto exponent = static_cast<uint64_t>(__double_as_longlong(shifted)) << 52;
  const uint64_t bits = static_cast<uint64_t>(__double_as_longlong(SmallExp(r))) + exponent;
  const double rounded = __dadd_rn(__longlong_as_double(static_cast<int64_t>(bits)), 0x1p52);
  return static_cast<uint64_t>(__double_as_longlong(rounded)) & ((uint64_t{1} << 52) - 1);
}

}  // namespace pagefuse::cuda
