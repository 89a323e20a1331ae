// SPDX-License-Identifier: Apache-2.0
// y = x * W^T with weights of 4 or 8 bits and activations rounded to 8: products of integers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pagefuse/ops/kernels/linalg/activation.h"
#include "pagefuse/ops/kernels/linalg/matrix.h"
#include "pagefuse/ops/kernels/linalg/nbits_lanes.h"

namespace pagefuse {

// What is computed. Each 32 elements of a row of x are a block of integers with a unit:
//   unit[r, b] = max |x| / 127,  q[r, k] = x[r, k] / unit[r, b], to the nearest, halves to even
//   y[r, n] = sum over b of unit[r, b] * scale[n, b] * (sum over k of q[r, k] * (code[n, k] - zero))
// The inner sum is exact, the outer one is of float32: for each 16 blocks it starts at 0 and takes
// these one by one, and what they make is added to y in their order. So a row of y has the same bits
// whatever the other rows are and on any number of threads. Zero points that are not the centre of
// codes are a term of their own for each block, after that of the centre. y is off from the product in
// float by at most the sum over b of unit[r, b] / 2 * (sum over k of |W[n, k]|), and by rounding.
// Where a block of x has NaN or infinity, its row of y is NaN.

// Elements of x in a block.
inline constexpr int64_t kInt8Block = 32;

// True if blocks of W hold whole blocks of x.
inline bool SuitsInt8(int64_t weight_block) { return weight_block % kInt8Block == 0; }

// Bytes of scratch memory (aligned to 64) that the functions below need for m rows of x.
size_t NBitsInt8ScratchBytes(int64_t m, const NBitsLanes& w);

// y [m, n] = x [m, k] * W^T, shared among the workers of the call. A few rows are bound by the
// bandwidth of reading the codes once. SuitsInt8(w.block).
void LinearNBitsInt8(const RowsView& x, const NBitsLanes& w, void* scratch, const OutputView& y);

// y [m, n] = activation(x * gate^T) * (x * up^T); both weights have the same bits, block, n and k.
struct GatedNBits {
  NBitsLanes gate, up;
  Gate by;
};
void GatedLinearNBitsInt8(const RowsView& x, const GatedNBits& w, void* scratch,
                          const OutputView& y);

}  // namespace pagefuse
