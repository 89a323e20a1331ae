// SPDX-License-Identifier: Apache-2.0
// y = x * W and y = act(x * Wg) * (x * Wu) with float32 weights as they lie in memory (a mapped
// file): never copied as a whole.
//
// A row of y has the same bits whatever the other rows are, how many there are, and on any number of
// threads: k is cut into chunks, which follow from the size of W alone; in each a sum starts at 0 and
// takes the products one by one as k ascends, and the sums of the chunks are added in their order. A
// product and its addition are one operation where the SIMD target has that.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pagefuse/ops/kernels/linalg/activation.h"
#include "pagefuse/ops/kernels/linalg/matrix.h"

namespace pagefuse {

// Bytes of scratch memory (aligned to 64) that LinearF32 needs.
size_t LinearF32ScratchBytes(int64_t m, const WeightView& w);

// y [m, n] = x [m, k] * W, shared among the workers of the call.
void LinearF32(const RowsView& x, const WeightView& w, void* scratch, const OutputView& y);

// Bytes of scratch memory (aligned to 64) that GatedLinearF32 needs.
size_t GatedLinearF32ScratchBytes(int64_t m, const WeightView& gate);

// y [m, n] = activation(x * gate) * (x * up), cut off as `by` says; both weights have the same k, n and order.
struct GatedWeights {
  WeightView gate, up;
  Gate by;
};
void GatedLinearF32(const RowsView& x, const GatedWeights& w, void* scratch, const OutputView& y);

}  // namespace pagefuse
