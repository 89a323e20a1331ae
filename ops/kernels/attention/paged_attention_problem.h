// SPDX-License-Identifier: Apache-2.0
// One call of PagedAttention as the CPU's kernels see it: numbers and pointers, and which keys each row may see.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/status.h"

#include "pagefuse/base/data_type.h"
#include "pagefuse/ops/kernels/attention/attention_batch.h"
#include "pagefuse/ops/kernels/formats/cache_format.h"
#include "pagefuse/ops/kernels/formats/turboquant_format.h"

namespace pagefuse {

struct PagedAttentionProblem : AttentionBatch {
  DataType compute_type;  // C
  CacheFormat format;
  // Present: what rows are in place of `format`, whose mode is none then. `keys` and `values` are
  // the two parts of each slot.
  std::optional<TurboQuantCache> turboquant;
  DataType output_type;

  const void* query;
  CacheRows keys, values;
  float k_scale, v_scale, q_scale;  // 1 where absent
  DataType sink_type;               // of head_sink
  const void* head_sink;            // null where absent, as all below
  const float* output_scale;
  const float* rht_signs;
  void* output;
  float* lse;

  // Bytes of a row, but for scales that lie elsewhere.
  int64_t key_row_bytes() const;
  int64_t value_row_bytes() const;
  // The row of position j of sequence b, whose block is in the table.
  RowAddress Row(const CacheRows& rows, int64_t b, int64_t j, int64_t kv_head) const {
    return rows.At(block_table[b * table_columns + j / block_size], j % block_size, kv_head);
  }
};

// Computes all rows, one at a time.
absl::Status RunPagedAttentionReference(const PagedAttentionProblem& p);

}  // namespace pagefuse
