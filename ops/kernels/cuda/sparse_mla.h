// SPDX-License-Identifier: Apache-2.0
// SparseMlaAttention on the device: multi-query attention of each token over rows of a latent cache, which are keys and, with their first
// elements, values. T tokens, H query heads, D elements of a row, V of a value.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pagefuse/base/data_type.h"
#include "pagefuse/ops/kernels/cuda/index_errors.h"
#include "pagefuse/ops/kernels/cuda/launch.h"
#include "pagefuse/ops/kernels/formats/cache_rows.h"
#include "pagefuse/ops/kernels/formats/grouped_row.h"

namespace pagefuse::cuda {

// Pointers are the device's; null where the call has no such input.
struct SparseMla {
  // Listed rows of one cache. Negative entries, and those from lens[t] on, are none.
  struct List {
    CacheRows rows;
    const int32_t* indices = nullptr;  // [T, columns]
    int64_t columns = 0;
    const int32_t* lens = nullptr;          // [T]
    int indices_input = 0, lens_input = 0;  // numbers of the node's inputs, as those below
  };

  DataType query_type = DataType::kFloat;  // and that of `out`: float, float16, bfloat16
  // Rows are elements of `element`, or codes in groups, rounded to bfloat16.
  bool plain = true;
  DataType element = DataType::kBfloat16;
  GroupedRowFormat grouped;

  int64_t tokens = 0, heads = 0;
  int head_size = 0, value_size = 0;
  float scale = 1;
  const void* q = nullptr;      // [T, H, D]
  const float* sink = nullptr;  // [H]
  void* out = nullptr;          // [T, H, V]
  float* lse = nullptr;         // [T, H]

  // One list or two, of the same format. The dense case has its cache in the first.
  List lists[2];
  int num_lists = 1;

  bool is_dense = false;
  // What follows is the dense case's alone. Token i of the n tokens of sequence b sees its rows up to seq_lens[b] - n + i, or all of them.
  const int32_t* block_table = nullptr;  // [sequences, table_columns]
  int64_t table_columns = 0, sequences = 0;
  const int32_t* seq_lens = nullptr;         // [sequences]
  const int32_t* query_start_loc = nullptr;  // [sequences + 1]
  bool is_causal = true;
  int block_table_input = 0, seq_lens_input = 0, query_start_loc_input = 0;

  IndexErrors errors;

  // Rows that a token may see at most.
  constexpr int64_t most_rows() const {
    if (is_dense) return table_columns * lists[0].rows.block_size;
    return lists[0].columns + (num_lists > 1 ? lists[1].columns : 0);
  }
};

// The longest row that the kernels take.
inline constexpr int kLongestLatentRow = 1024;
// And the most rows that a token sees.
inline constexpr int64_t kMostLatentRows = int64_t{1} << 30;

// Whether a CTA of the current device has memory for tiles of such rows.
bool HasMemoryForSparseMla(const SparseMla& call);

// By tensor cores where the call fits them (sparse_mla_tiles.h), else by plain sums in float. `workspace`: device memory of so many bytes.
size_t SparseMlaWorkspace(const SparseMla& call);
Error LaunchSparseMla(const SparseMla& call, void* workspace, Stream stream);

}  // namespace pagefuse::cuda
