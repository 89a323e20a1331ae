// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/attention/paged_attention_problem.h"

namespace pagefuse {

int64_t PagedAttentionProblem::key_row_bytes() const {
  return turboquant ? turboquant->format.KeyBytes() : format.RowBytes(head_size);
}

int64_t PagedAttentionProblem::value_row_bytes() const {
  return turboquant ? turboquant->format.ValueBytes() : format.RowBytes(head_size);
}

}  // namespace pagefuse
