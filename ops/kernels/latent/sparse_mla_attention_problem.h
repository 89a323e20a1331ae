// SPDX-License-Identifier: Apache-2.0
// One call of SparseMlaAttention as kernels see it: numbers and pointers, and the rows of each
// token.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"

#include "pagefuse/ops/kernels/formats/cache_format.h"
#include "pagefuse/ops/kernels/formats/grouped_row.h"

namespace pagefuse {

struct SparseMlaProblem {
  // Listed rows of one cache.
  struct List {
    CacheRows cache;
    int64_t num_rows = 0;
    const int32_t* indices = nullptr;  // [T, columns]
    int64_t columns = 0;
    const int32_t* lens = nullptr;  // [T] or null

    // Entries of token t that count.
    int64_t length(int64_t t) const { return lens != nullptr ? lens[t] : columns; }
  };

  float scale = 1;
  bool is_causal = true;  // of the dense case
  bool plain = true;      // rows are elements of the cache type, else as `grouped` says
  GroupedRowFormat grouped;
  DataType query_type, cache_type;
  int64_t num_tokens, num_heads, head_size, value_size;
  const void* q;
  const float* sink;  // null where absent
  void* out;
  float* lse;  // null where absent

  std::vector<List> lists;  // one or two; the dense case has the cache in the first
  bool dense = false;       // what follows is the dense case alone
  const int32_t* block_table = nullptr;
  const int32_t* seq_lens = nullptr;
  const int32_t* query_start_loc = nullptr;
  int64_t num_sequences = 0, table_columns = 0;

  const CacheRows& cache() const { return lists[0].cache; }
  int64_t num_queries(int64_t b) const { return query_start_loc[b + 1] - query_start_loc[b]; }
  // Dense: how many rows of sequence b its query token i sees; they are the first ones.
  int64_t VisibleRows(int64_t b, int64_t i) const {
    if (!is_causal) return seq_lens[b];
    return std::max<int64_t>(0, int64_t{seq_lens[b]} - num_queries(b) + i + 1);
  }
  // Dense: appends the rows at positions [begin, end) of sequence b.
  void AppendPositions(int64_t b, int64_t begin, int64_t end, std::vector<RowAddress>& rows) const;
  // Listed: appends rows [begin, end) of token t, in the order of the lists.
  void AppendListed(int64_t t, int64_t begin, int64_t end, std::vector<RowAddress>& rows) const;
};

// Computes all rows, one at a time.
absl::Status RunSparseMlaReference(const SparseMlaProblem& p);

}  // namespace pagefuse
