// SPDX-License-Identifier: Apache-2.0
// y = x * W^T with weights of 2, 4 or 8 bits, which stay so in memory and are decoded in registers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"

#include "pagefuse/ops/kernels/linalg/matrix.h"
#include "pagefuse/ops/kernels/numeric/small_float.h"

namespace pagefuse {

// A weight [n, k] in blocks of `block` elements along k; the last block of a row may be padded. Of
// 4-bit codes `block` is even, or there is but one.
//   element (r, c) = (code(r, c) - zero(r, c / block)) * scale[r * blocks + c / block]
// Codes of a row lie one after the other, 4-bit ones two a byte and 2-bit ones four, the first in the
// low bits; rows start `row_bytes` apart. The memory is the caller's; no alignment is needed.
struct NBitsWeight {
  int bits = 4;
  int64_t n = 0;
  int64_t k = 0;
  int64_t block = 0;
  const uint8_t* codes = nullptr;
  int64_t row_bytes = 0;
  const float* scales = nullptr;  // [n, blocks]
  // Zero points: codes packed as the weight's, rows zero_row_bytes apart; or floats [n, blocks]; or
  // neither, and then 2^(bits - 1).
  const uint8_t* zero_codes = nullptr;
  int64_t zero_row_bytes = 0;
  const float* zeros = nullptr;

  int64_t blocks() const { return (k + block - 1) / block; }
  uint8_t Code(int64_t row, int64_t column) const;
  float Zero(int64_t row, int64_t index) const;
};

// The scales as float16, if that is what all of them are; else nothing.
std::vector<Float16> HalfScales(const float* scales, int64_t count);

// Row `row` of W as floats: to[0, k).
void DecodeNBitsRow(const NBitsWeight& w, int64_t row, float* to);

// Bytes of scratch memory (aligned to 64) that LinearNBits needs for m rows of x.
size_t NBitsScratchBytes(int64_t m, const NBitsWeight& w);

enum class NBitsPrecision {
  kFloat32,   // products and sums in float32
  kBfloat16,  // products may round both sides to bfloat16, where the machine has a unit for it
};

// y [m, n] = x [m, k] * W^T, shared among the workers of the call. Precision and machine decide how:
// with float32,
//   y[r, n] = sum over b of scale[n, b] * (sum over k of code[n, k] * x[r, k] - zero * sum of x[r, k])
// where sums start at 0, the inner one at its zero point's part, and take blocks and elements one by
// one; a block of more than 256 elements is several. With a unit for bfloat16, W is decoded and
// rounded for LinearBf16. Either way a row of y has the same bits whatever the other rows are and on
// any number of threads. A few rows are bound by the bandwidth of reading the codes once.
// ResourceExhausted if there is no memory for decoded weights.
absl::Status LinearNBits(const RowsView& x, const NBitsWeight& w, NBitsPrecision precision,
                         void* scratch, const OutputView& y);

}  // namespace pagefuse
