// SPDX-License-Identifier: Apache-2.0
// Integer weights of logits. Sums of them are exact, so that neither the order of a sum, nor where a
// row is cut, nor the target changes what is drawn by them.
#pragma once

#include <cstdint>

#include "pagefuse/ops/kernels/numeric/exp_numbers.h"

namespace pagefuse::onnx_ops {

inline constexpr int kWeightBits = ExpNumbers::kWeightBits;
// Elements of which a sum of weights fits into 64 bits.
inline constexpr int64_t kMostWeights = (int64_t{1} << (64 - kWeightBits)) - 1;

// x = (logit - largest) * inverse_temperature, each step rounded to double. No logit is larger, none
// is NaN; -infinity weighs 0. inverse_temperature is finite and positive.
struct WeightScale {
  double largest;
  double inverse_temperature;
};

// The weight of a logit is 2^44 e^x, rounded to an integer, by an exponential in fused
// multiply-adds of double that has the same bits on every target.

// Their sum over logits[0, n), n at most kMostWeights.
uint64_t SumExpWeights(const float* logits, int64_t n, const WeightScale& scale);
// The weights themselves, and their sum.
uint64_t ExpWeights(const float* logits, int64_t n, const WeightScale& scale, uint64_t* weights);

// Writes first + i, ascending, for each x[i] that is `least` or more; returns how many.
int64_t IndicesAtLeast(const float* x, int64_t n, float least, int32_t first, int32_t* indices);

}  // namespace pagefuse::onnx_ops
