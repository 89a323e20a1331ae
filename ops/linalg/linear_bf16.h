// y = x * W and y = act(x * Wg) * (x * Wu) with packed bfloat16 weights.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pagefuse/ops/linalg/activation.h"
#include "pagefuse/ops/linalg/packed_bf16.h"

namespace pagefuse {

// What both products compute, exactly: x is rounded to bfloat16 (nearest even); products of
// bfloat16 are exact in float32; for each 32 rows of W in order, the sums over even and over odd
// rows are made in float32 in ascending order, added, and the result is added to y. That is what an
// AMX tile does (Intel SDM, TDPBF16PS), and the portable kernels repeat it operation for operation:
// a row of y has the same bits on every machine, whatever other rows there are and however many
// threads (only results that are subnormal in float32 may differ: AMX flushes them to zero).

// Bytes of scratch memory that the functions below need for m rows.
size_t LinearBf16ScratchBytes(int64_t m, int64_t k);

// y [m, n] = x [m, k] * W. All OpenMP threads; `scratch` has LinearBf16ScratchBytes(m, k) bytes
// aligned to 64. `w` is not gated.
void LinearBf16(const RowsView& x, const PackedBf16& w, void* scratch, const OutputView& y);

// y [m, n] = activation(x * gate) * (x * up), for a gated `w`. The products stay in cache.
void GatedLinearBf16(const RowsView& x, const PackedBf16& w, Activation activation, void* scratch,
                     const OutputView& y);

}  // namespace pagefuse
