// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/cuda/paged_prefill.h"

#include <algorithm>
#include <limits>

namespace pagefuse::cuda {
namespace {

constexpr int64_t kMost = std::numeric_limits<int32_t>::max();

// Rows that are copied by 16 bytes, whose places in such units have 32 bits.
bool TakesRows(const CacheRows& rows, const AttentionBatch& batch) {
  const CacheRows::Strides& stride = rows.data_strides;
  if (reinterpret_cast<uintptr_t>(rows.data) % 16 != 0) return false;
  for (const int64_t bytes : {stride.block, stride.row, stride.head}) {
    if (bytes < 0 || bytes % 16 != 0) return false;
  }
  return batch.num_blocks * (stride.block / 16) + batch.block_size * (stride.row / 16) <= kMost;
}

bool TakesBatch(const AttentionBatch& batch) {
  const bool known_size = batch.head_size == 64 || batch.head_size == 128 || batch.head_size == 256;
  return known_size && batch.num_ranges == 0 && batch.qq_bias == nullptr &&
         batch.alibi_slopes == nullptr && batch.num_blocks > 0 &&
         // Weights are taken of the largest product, not of the largest score.
         batch.scale > 0 &&
         // Kernels count in 32 bits.
         batch.num_tokens * batch.num_heads <= kMost &&
         batch.table_columns * batch.block_size <= kMost;
}

AttentionCut CutPrompts(const AttentionBatch& batch, int rows, int multiprocessors) {
  constexpr int kCtas = 2;              // of a multiprocessor
  constexpr int64_t kFewestKeys = 256;  // of a split
  constexpr int64_t kMostSplits = 128;
  const int group = static_cast<int>(batch.group());
  AttentionCut cut;
  cut.part_heads = std::min(group, rows);
  cut.parts = (group + cut.part_heads - 1) / cut.part_heads;
  cut.tile_tokens = cut.parts > 1 ? 1 : rows / cut.part_heads;
  cut.warps = kPrefillWarps;
  cut.tiles = batch.num_tokens / cut.tile_tokens + batch.num_sequences;
  const int64_t full_tiles = (batch.num_tokens + cut.tile_tokens - 1) / cut.tile_tokens;
  const int64_t ctas = std::max<int64_t>(1, full_tiles * batch.num_kv_heads * cut.parts);
  const int64_t wanted = int64_t{multiprocessors} * kCtas / ctas;
  const int64_t most = batch.table_columns * batch.block_size / kFewestKeys;
  cut.splits = static_cast<int>(std::max<int64_t>(1, std::min({wanted, most, kMostSplits})));
  return cut;
}

}  // namespace

PrefillPlan PlanPrefill(const PagedAttention& p, int multiprocessors) {
  const bool is_bfloat = p.element == DataType::kBfloat16;
  const bool exact = p.compute_type == DataType::kFloat;
  if (p.is_turboquant || p.mode != KvQuantMode::kNone) return {};
  if (!is_bfloat && p.element != DataType::kFloat16) return {};
  // Other pairs of types round rows to that of the query.
  if (p.element != p.compute_type && !exact) return {};
  if (!TakesBatch(p.batch) || reinterpret_cast<uintptr_t>(p.query) % 16 != 0) return {};
  if (!TakesRows(p.keys, p.batch) || !TakesRows(p.values, p.batch)) return {};
  // Sequences of a token each leave most of a tile empty.
  if (p.batch.num_tokens <= p.batch.num_sequences) return {};
  const int rows = PrefillTile::Of(is_bfloat, static_cast<int>(p.batch.head_size), exact).rows();
  return {p.element, exact, CutPrompts(p.batch, rows, multiprocessors)};
}

Error LaunchPagedPrefill(const PagedAttention& p, const PrefillPlan& plan, Stream stream) {
  if (p.batch.num_tokens == 0 || p.batch.num_heads == 0) return 0;
  const Error error = plan.element == DataType::kBfloat16 ? LaunchPrefillBfloat16(p, plan, stream)
                                                          : LaunchPrefillFloat16(p, plan, stream);
  if (error != 0 || plan.cut.splits == 1) return error;
  return LaunchAttentionJoin(p, plan.cut.splits, stream);
}

}  // namespace pagefuse::cuda
