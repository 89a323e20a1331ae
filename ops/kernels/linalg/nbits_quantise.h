// SPDX-License-Identifier: Apache-2.0
// Weights become codes of 4 or 8 bits in blocks of 32.
#pragma once

#include <cstdint>

#include "pagefuse/ops/kernels/formats/weight_format.h"

namespace pagefuse {

// Where codes and scales of block after block go.
struct NBitsBlocks {
  uint8_t* codes = nullptr;
  int64_t code_stride = 0;  // bytes from one block to the next
  float* scales = nullptr;
  int64_t scale_stride = 0;  // numbers from one block to the next
};

// w[32 i, 32 i + 32) is about (code - L) * scale[i], L = 2^(bits - 1), for each i below `count`.
// The number of the largest magnitude is the code 0, -L: the only one without a counterpart. With
// codes to the nearest, the scale is then the one of the least sum of squared errors, rounded to a
// normal float16 if it has one: products then read less (HalfScales). A block of zeros, or of nothing but subnormal steps, has the scale 0; one with NaN or infinity the scale NaN.
// 4-bit codes lie two a byte, the first in the low bits.
void QuantiseNBits(const float* w, int64_t count, int bits, const NBitsBlocks& to);

}  // namespace pagefuse
