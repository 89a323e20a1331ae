// SPDX-License-Identifier: Apache-2.0
// Grouped rows of computed floats, which are rounded to bfloat16 before they become codes. Device code: for .cu files.
#pragma once

#include "pagefuse/ops/kernels/cuda/grouped_rows.h"

namespace pagefuse::cuda {

// Stores x[0, format.elements()) of shared memory, rounded already, a warp a row.
__device__ inline void StoreGroupedFloats(const GroupedRowFormat& format, const float* x,
                                          RowAddress row) {
  EncodeCodedElements(format, x, row);
  if (format.plain == 0) return;
  StorePlainElements(format, row, [=, &format](int i) { return Bfloat16(x[format.coded + i]); });
}

}  // namespace pagefuse::cuda
