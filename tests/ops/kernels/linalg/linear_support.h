// SPDX-License-Identifier: Apache-2.0
// Inputs and oracles of the tests of matrix products.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "pagefuse/ops/kernels/linalg/cpu_features.h"
#include "pagefuse/ops/kernels/linalg/matrix.h"

namespace pagefuse::testing {

inline std::vector<float> RandomFloats(int64_t n, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.0f, 1.0f);
  std::vector<float> values(n);
  for (float& v : values) v = normal(generator);
  return values;
}

inline double WeightAt(const WeightView& w, int64_t k, int64_t n) {
  return w.transposed ? w.data[n * w.k + k] : w.data[k * w.n + n];
}

// x [m, k] * W in double, and the sum of the magnitudes of its terms, which bounds the rounding.
struct DoubleProduct {
  std::vector<double> y;
  std::vector<double> magnitude;
};

inline DoubleProduct MultiplyInDouble(const RowsView& x, const WeightView& w) {
  DoubleProduct product;
  for (int64_t r = 0; r < x.m; ++r) {
    for (int64_t c = 0; c < w.n; ++c) {
      double sum = 0;
      double magnitude = 0;
      for (int64_t k = 0; k < w.k; ++k) {
        const double term = x.data[r * x.stride + k] * WeightAt(w, k, c);
        sum += term;
        magnitude += std::abs(term);
      }
      product.y.push_back(sum);
      product.magnitude.push_back(magnitude);
    }
  }
  return product;
}

// Round to nearest even, by the definition: the upper half, and one more if the lower half is above
// a half, or half and odd.
inline float RoundToBfloat16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  const uint32_t low = bits & 0xFFFF;
  uint32_t high = bits >> 16;
  if (low > 0x8000 || (low == 0x8000 && (high & 1) != 0)) ++high;
  bits = high << 16;
  std::memcpy(&x, &bits, sizeof(bits));
  return x;
}

// One element as linear_bf16.h defines it, for the unit for bfloat16 that is in use.
inline float Bf16Dot(const float* x, const WeightView& w, int64_t column) {
  const auto product = [&](int64_t k) {
    if (k >= w.k) return 0.0f;
    return RoundToBfloat16(x[k]) * RoundToBfloat16(static_cast<float>(WeightAt(w, k, column)));
  };
  float total = 0.0f;
  if (BestBf16Unit() == Bf16Unit::kAvx512) {
    for (int64_t k = 0; k < w.k; k += 2) {
      total += product(k + 1);
      total += product(k);
    }
    return total;
  }
  for (int64_t block = 0; block < w.k; block += 32) {
    float sums[2] = {0.0f, 0.0f};
    for (int64_t k = block; k < std::min(block + 32, w.k); ++k) sums[k % 2] += product(k);
    total += sums[0] + sums[1];
  }
  return total;
}

}  // namespace pagefuse::testing
