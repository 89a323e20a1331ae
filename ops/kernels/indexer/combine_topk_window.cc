// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/indexer/combine_topk_window.h"

namespace pagefuse::pagefuse_ops {

void CombineRow(const CombinedRow& row, int32_t* combined) {
  for (int64_t i = 0; i < row.width; ++i) {
    int64_t value = -1;
    if (i < row.compressed) {
      value = row.topk[i] + row.first_row;
    } else if (i < row.compressed + row.window) {
      value = row.first_window_row + i - row.compressed;
    }
    combined[i] = static_cast<int32_t>(value);
  }
}

}  // namespace pagefuse::pagefuse_ops
