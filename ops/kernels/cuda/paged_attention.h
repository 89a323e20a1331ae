// SPDX-License-Identifier: Apache-2.0
// Attention of packed query tokens over paged keys and values on the device, in every format: PagedAttention and TurboQuantAttention.
#pragma once

#include <cstdint>

#include "pagefuse/base/data_type.h"
#include "pagefuse/ops/kernels/attention/attention_batch.h"
#include "pagefuse/ops/kernels/cuda/centroid_table.h"
#include "pagefuse/ops/kernels/cuda/launch.h"
#include "pagefuse/ops/kernels/formats/cache_rows.h"
#include "pagefuse/ops/kernels/formats/row_format.h"
#include "pagefuse/ops/kernels/formats/turboquant_slot.h"

namespace pagefuse::cuda {

// Pointers are the device's; null where the call has no such input.
struct PagedAttention {
  AttentionBatch batch;
  DataType compute_type = DataType::kFloat;  // of the query: float, float16, bfloat16, float8e4m3fn
  DataType output_type = DataType::kFloat;   // logical: no uint8
  DataType sink_type = DataType::kFloat;

  // What rows are: of a mode, or the keys and values of slots.
  KvQuantMode mode = KvQuantMode::kNone;
  DataType element = DataType::kFloat;  // of the caches, logical
  bool is_turboquant = false;
  TurboQuantFormat slot;
  bool norm_correction = false;
  const float* rotation = nullptr;  // [head_size, head_size]; null: the Hadamard matrix
  CentroidTable centroids;

  CacheRows keys, values;
  const void* query = nullptr;     // [T, Hq, D]
  const float* k_scale = nullptr;  // one number each
  const float* v_scale = nullptr;
  const float* q_scale = nullptr;
  const void* head_sink = nullptr;      // [Hq]
  const float* output_scale = nullptr;  // one number
  const float* rht_signs = nullptr;     // [D]
  void* output = nullptr;               // [T, Hq, D]
  float* lse = nullptr;                 // [Hq, T]

  constexpr bool transforms_rows() const { return mode == KvQuantMode::kInt4PerTokenHead; }
  constexpr bool rotates_keys() const { return is_turboquant && slot.has_centroids(); }
  // Queries are brought to the space of the keys first.
  constexpr bool transforms_query() const { return transforms_rows() || rotates_keys(); }
  constexpr bool has_f8_query() const { return compute_type == DataType::kFloat8E4M3FN; }

  // Working memory, of as many floats as AttentionWorkspace says.
  float* rotated_query = nullptr;   // [T, Hq, D], where queries are transformed
  float* partial_values = nullptr;  // [splits, T * Hq, D], where there is more than one split
  float* partial_sums = nullptr;    // [splits, T * Hq, 2]: largest score, sum of weights
};

// How the plain kernel is cut: by sizes that no length changes. A CTA takes the rows (token, head) of `tile_tokens` tokens of a sequence and
// of `part_heads` query heads of a KV head, four rows a warp, and one split of their keys.
struct AttentionCut {
  int tile_tokens = 1;
  int part_heads = 1;
  int parts = 1;   // of a KV head's group
  int warps = 1;   // of a CTA
  int splits = 1;  // of the keys
  int64_t tiles = 0;

  // Sequence b has its tiles from here on, at most up to the next one's.
  static constexpr int64_t FirstTile(const AttentionBatch& batch, int tile_tokens, int64_t b) {
    return batch.first_token(b) / tile_tokens + b;
  }
};
// On the current device.
AttentionCut CutAttention(const AttentionBatch& batch);

// Floats of `rotated_query`, `partial_values` and `partial_sums`.
struct AttentionWorkspace {
  int64_t rotated_query = 0, partial_values = 0, partial_sums = 0;
};
AttentionWorkspace WorkspaceOf(const PagedAttention& p, const AttentionCut& cut);

// The longest head that the kernel takes.
inline constexpr int kLongestAttentionHead = 512;

// Every mode; any batch.
Error LaunchPagedAttention(const PagedAttention& p, const AttentionCut& cut, Stream stream);

// Its parts. Rotates queries to `rotated_query`.
Error LaunchQueryTransform(const PagedAttention& p, Stream stream);
// Joins `splits` partial results to the outputs.
Error LaunchAttentionJoin(const PagedAttention& p, int splits, Stream stream);

}  // namespace pagefuse::cuda
