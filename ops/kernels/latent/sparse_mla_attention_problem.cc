// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/latent/sparse_mla_attention_problem.h"

namespace pagefuse {

void SparseMlaProblem::AppendPositions(int64_t b, int64_t begin, int64_t end,
                                       std::vector<RowAddress>& rows) const {
  const int32_t* table = block_table + b * table_columns;
  const int64_t size = cache().block_size;
  for (int64_t j = begin; j < end; ++j) rows.push_back(cache().At(table[j / size], j % size, 0));
}

void SparseMlaProblem::AppendListed(int64_t t, int64_t begin, int64_t end,
                                    std::vector<RowAddress>& rows) const {
  int64_t row = 0;
  for (const List& list : lists) {
    const int32_t* indices = list.indices + t * list.columns;
    for (int64_t k = 0; k < list.length(t) && row < end; ++k) {
      if (indices[k] < 0) continue;
      if (row >= begin) rows.push_back(list.cache.AtSlot(indices[k], 0));
      ++row;
    }
  }
}

}  // namespace pagefuse
