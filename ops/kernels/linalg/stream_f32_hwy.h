// SPDX-License-Identifier: Apache-2.0
// Streaming float32 products for few rows of x by a W [k, n]: each reads its part of W once, four rows
// of W side by side.
#pragma once

#include <cstdint>

#include "pagefuse/ops/kernels/linalg/matrix.h"

namespace pagefuse {

// A part of W: rows [k_begin, k_end), columns [n_begin, n_end) of it as [k, n].
struct WeightPart {
  int64_t k_begin;
  int64_t k_end;
  int64_t n_begin;
  int64_t n_end;
};

// out row r, columns [n_begin, n_end) = x[r, k_begin..k_end) * part. Each sum starts at 0 and takes the
// part's rows of W one by one. The part is not empty.
void StreamRowMajor(const RowsView& x, const WeightView& w, const WeightPart& part,
                    const OutputView& out);

// out[i] = partial[i] + partial[i + stride] + ... (count terms, in this order) for i in [0, n).
void SumPartials(const float* partial, int64_t stride, int64_t count, int64_t n, float* out);

}  // namespace pagefuse
