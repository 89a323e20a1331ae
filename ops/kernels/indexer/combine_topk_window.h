// SPDX-License-Identifier: Apache-2.0
// One output row of CombineTopKWindow and the two ways to write it.
#pragma once

#include <cstdint>

namespace pagefuse::pagefuse_ops {

// `compressed` rows topk[i] + first_row, then `window` rows from first_window_row on, then -1 up to
// `width`. Every number fits int32.
struct CombinedRow {
  const int32_t* topk = nullptr;
  int64_t compressed = 0;
  int64_t window = 0;
  int64_t first_row = 0;
  int64_t first_window_row = 0;
  int64_t width = 0;
};

// Writes combined[0, width). The same numbers, plain and vectorised.
void CombineRow(const CombinedRow& row, int32_t* combined);
void CombineRowHwy(const CombinedRow& row, int32_t* combined);

}  // namespace pagefuse::pagefuse_ops
