// SPDX-License-Identifier: Apache-2.0
// One call of PagedAttention as kernels see it: numbers and pointers, and which keys each row may
// see.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "absl/status/status.h"

#include "pagefuse/base/data_type.h"
#include "pagefuse/ops/kernels/formats/cache_format.h"
#include "pagefuse/ops/kernels/formats/turboquant_format.h"

namespace pagefuse {

// Positions [begin, end); empty if end <= begin.
struct KeyInterval {
  int64_t begin = 0, end = 0;
  bool empty() const { return end <= begin; }
  KeyInterval Intersect(KeyInterval other) const {
    return {std::max(begin, other.begin), std::min(end, other.end)};
  }
};

// Which keys a query token sees, and what its scores become.
struct AttentionRules {
  bool is_causal = true;
  // 0: none; else the number of visible keys, the token itself included.
  int64_t sliding_window = 0;
  float softcap = 0;  // 0: none
  int64_t chunk_lookback = -1;
  bool use_alibi_sqrt = false;
  bool mm_prefix_clamp_window = false;

  // Tokens in a chunk, 0 where chunks are off.
  int64_t chunk_size() const {
    return chunk_lookback >= 0 && sliding_window > 0 ? sliding_window / (chunk_lookback + 1) : 0;
  }
};

struct PagedAttentionProblem {
  AttentionRules rules;
  DataType compute_type;  // C
  CacheFormat format;
  // Present: what rows are in place of `format`, whose mode is none then. `keys` and `values` are
  // the two parts of each slot.
  std::optional<TurboQuantCache> turboquant;
  DataType output_type;
  int64_t num_tokens, num_sequences, num_heads, num_kv_heads, head_size;
  int64_t num_blocks, block_size, table_columns, num_ranges, qq_size;
  float scale;

  const void* query;
  CacheRows keys, values;
  const int32_t* query_start_loc;
  const int32_t* seq_lens;
  const int32_t* block_table;
  float k_scale, v_scale, q_scale;  // 1 where absent
  DataType sink_type;               // of head_sink
  const void* head_sink;            // null where absent, as all below
  const float* alibi_slopes;
  const float* qq_bias;
  const int32_t* ranges;
  const bool* causal_flags;
  const float* output_scale;
  const float* rht_signs;
  void* output;
  float* lse;

  int64_t group() const { return num_heads / num_kv_heads; }
  // Bytes of a row, but for scales that lie elsewhere.
  int64_t key_row_bytes() const {
    return turboquant ? turboquant->format.KeyBytes() : format.RowBytes(head_size);
  }
  int64_t value_row_bytes() const {
    return turboquant ? turboquant->format.ValueBytes() : format.RowBytes(head_size);
  }
  int64_t num_queries(int64_t b) const { return query_start_loc[b + 1] - query_start_loc[b]; }
  int64_t length(int64_t b) const { return seq_lens[b]; }
  // Position of the sequence's first query token; negative if it has more query tokens than keys.
  int64_t context(int64_t b) const { return length(b) - num_queries(b); }
  bool is_causal(int64_t b) const {
    return causal_flags != nullptr ? causal_flags[b] : rules.is_causal;
  }
  // The row of position j of sequence b, whose block is in the table.
  RowAddress Row(const CacheRows& rows, int64_t b, int64_t j, int64_t kv_head) const {
    return rows.At(block_table[b * table_columns + j / block_size], j % block_size, kv_head);
  }

  // Keys that window or chunks leave to a token at position p, causality aside.
  KeyInterval WindowAt(int64_t b, int64_t p) const;
  // Keys that causality and window leave to it.
  KeyInterval BaseAt(int64_t b, int64_t p) const;
  // Keys that range r of the sequence adds; empty if it does not hold p.
  KeyInterval RangeAt(int64_t b, int64_t p, int64_t r) const;
  // The smallest interval with every key that some row of the sequence sees.
  KeyInterval Hull(int64_t b) const;
};

// Computes all rows, one at a time.
absl::Status RunPagedAttentionReference(const PagedAttentionProblem& p);

}  // namespace pagefuse
