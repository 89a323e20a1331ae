// SPDX-License-Identifier: Apache-2.0
// y = x * W and y = act(x * Wg) * (x * Wu) with packed bfloat16 weights.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pagefuse/ops/kernels/linalg/activation.h"
#include "pagefuse/ops/kernels/linalg/nbits_lanes.h"
#include "pagefuse/ops/kernels/linalg/packed_bf16.h"

namespace pagefuse {

// What both products compute, exactly: x is rounded to bfloat16 (nearest even); products of
// bfloat16 are exact in float32; sums are float32. A row of y has the same bits whatever other rows
// there are and however many threads (only results that are subnormal in float32 may be zero
// instead). The order of a sum depends on the machine:
//   AMX, and every machine without a unit for bfloat16: for each 32 rows of W in order, the sums
//     over even and over odd rows are made in ascending order, added, and the result is added to y
//     (Intel SDM, TDPBF16PS)
//   AVX512-BF16 without AMX: for each two rows of W in order, the product with the odd row is added
//     to y, then that with the even one (VDPBF16PS)

// Bytes of scratch memory that the functions below need for m rows.
size_t LinearBf16ScratchBytes(int64_t m, int64_t k);

// y [m, n] = x [m, k] * W, shared among the workers of the call; `scratch` has
// LinearBf16ScratchBytes(m, k) bytes aligned to 64. `w` is not gated.
void LinearBf16(const RowsView& x, const PackedBf16& w, void* scratch, const OutputView& y);

// y [m, n] = activation(x * gate) * (x * up), cut off as `gate` says, for a gated `w`. The products stay in cache.
void GatedLinearBf16(const RowsView& x, const PackedBf16& w, const Gate& gate, void* scratch,
                     const OutputView& y);

// The same with codes, decoded and rounded to bfloat16 a panel at a time: what is added to y is that
// of AMX above. `w.block` is a multiple of 32. Needs ReadsCodesAsBf16(), where this is faster than
// products of integers (nbits_int8.h) of many rows; `scratch` has LinearBf16ScratchBytes(m, k) bytes.
bool ReadsCodesAsBf16();
void LinearCodesBf16(const RowsView& x, const NBitsLanes& w, void* scratch, const OutputView& y);
void GatedLinearCodesBf16(const RowsView& x, const NBitsLanes& gate, const NBitsLanes& up,
                          const Gate& by, void* scratch, const OutputView& y);

}  // namespace pagefuse
