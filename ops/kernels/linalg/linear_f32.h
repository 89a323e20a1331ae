// SPDX-License-Identifier: Apache-2.0
// y = x * W and y = act(x * Wg) * (x * Wu) with float32 weights as they lie in memory (a mapped
// file): never packed or copied.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"

#include "pagefuse/ops/kernels/linalg/activation.h"
#include "pagefuse/ops/kernels/linalg/matrix.h"

namespace pagefuse {

// Rows of x up to this number go through streaming kernels, bound by the bandwidth of reading W;
// more go to oneDNN's sgemm. No result depends on the number of threads. In the streaming kernels a
// row of y has the same bits whatever the other rows are. sgemm sums in another order: a row may
// differ by rounding between a product of few rows and one of many.
inline constexpr int64_t kMaxStreamedRows = 16;

// Bytes of scratch memory (aligned to 64) that LinearF32 needs.
size_t LinearF32ScratchBytes(int64_t m, const WeightView& w);

// y [m, n] = x [m, k] * W, shared among the workers of the call. Internal if oneDNN refuses.
absl::Status LinearF32(const RowsView& x, const WeightView& w, void* scratch, const OutputView& y);

// Bytes of scratch memory (aligned to 64) that GatedLinearF32 needs.
size_t GatedLinearF32ScratchBytes(int64_t m, const WeightView& gate);

// y [m, n] = activation(x * gate) * (x * up), cut off as `by` says; both weights have the same k, n and order.
struct GatedWeights {
  WeightView gate, up;
  Gate by;
};
absl::Status GatedLinearF32(const RowsView& x, const GatedWeights& w, void* scratch,
                            const OutputView& y);

}  // namespace pagefuse
