// SPDX-License-Identifier: Apache-2.0
// Floats as the tensor cores take them: a high part of 11 bits and a low one, whose own bits beyond 11 do not count. Of the products of parts all
// but that of two low ones are summed: they lack less than 2^-19 of a product. Device code: for .cu files.
#pragma once

#include "pagefuse/ops/kernels/cuda/convert.h"
#include "pagefuse/ops/kernels/cuda/paged_decode_ptx.h"

namespace pagefuse::cuda {

inline constexpr uint32_t kHighBits = 0xFFFFE000u;

// With the nearest high part, for B, of which there is little: its low parts have either sign, so that what products lack has no bias.
__device__ inline void SplitNearest(float x, uint32_t& high, uint32_t& low) {
  high = (__float_as_uint(x) + 0x1000) & kHighBits;
  low = __float_as_uint(x - __uint_as_float(high));
}

// A, split by cutting bits off, times B in parts: to `large` the product of the high parts.
__device__ inline void MultiplyParts(float (&large)[4], float (&small)[4], const uint32_t (&a)[4],
                                     const uint32_t* b_high, const uint32_t* b_low) {
  uint32_t high[4], low[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    high[i] = a[i] & kHighBits;
    low[i] = __float_as_uint(__uint_as_float(a[i]) - __uint_as_float(high[i]));
  }
  ptx::MultiplyFloats(large, high, b_high[0], b_high[1]);
  ptx::MultiplyFloats(small, low, b_high[0], b_high[1]);
  ptx::MultiplyFloats(small, high, b_low[0], b_low[1]);
}

// ptx::Transpose of floats, by their lower and their upper 16 bits.
__device__ inline void TransposeFloats(float& first, float& second) {
  const uint32_t a = __float_as_uint(first), b = __float_as_uint(second);
  const uint32_t low = ptx::Transpose(BytePermute(a, b, 0x5410));
  const uint32_t high = ptx::Transpose(BytePermute(a, b, 0x7632));
  first = __uint_as_float(BytePermute(low, high, 0x5410));
  second = __uint_as_float(BytePermute(low, high, 0x7632));
}

}  // namespace pagefuse::cuda
