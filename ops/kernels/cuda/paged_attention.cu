// SPDX-License-Identifier: Apache-2.0
// Paged attention in every mode, in float: tiles of 32 keys are decoded to shared memory, once for all rows of a CTA. A warp has four rows;
// a lane scores one key for each of them, then has some channels of their outputs. Splits of the keys are joined as Flash-Decoding does.
#include <algorithm>

#include "pagefuse/ops/kernels/cuda/paged_attention_kernel.h"

namespace pagefuse::cuda {
namespace {

// Of a CTA, so that there is room for their rows beside a tile.
int MostWarps(int head_size) {
  tiles::TileShape shape = {.head_size = head_size, .warps = tiles::kMostWarps, .copies = 0};
  while (shape.bytes() > MostShared() && shape.warps > 1) --shape.warps;
  return shape.warps;
}

Error LaunchTiles(const PagedAttention& p, const AttentionCut& cut, Stream stream) {
  if (p.batch.head_size <= 256) return LaunchChunks<2>(p, cut, stream);
  if (p.batch.head_size <= kLongestAttentionHead) return LaunchChunks<4>(p, cut, stream);
  return cudaErrorInvalidValue;
}

}  // namespace

int Multiprocessors() {
  int device = 0;
  int count = 1;
  if (cudaGetDevice(&device) != cudaSuccess) return 1;
  cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
  return count;
}

AttentionCut CutAttention(const AttentionBatch& batch) {
  constexpr int kFewestKeys = tiles::kKeys;  // of a split
  constexpr int kMostSplits = 128;
  const int rows = MostWarps(static_cast<int>(batch.head_size)) * tiles::kRows;
  const int group = static_cast<int>(batch.group());
  AttentionCut cut;
  cut.part_heads = std::min(group, rows);
  cut.parts = (group + cut.part_heads - 1) / cut.part_heads;
  // Sequences of a token each have a tile each.
  const bool decodes = batch.num_tokens <= batch.num_sequences;
  cut.tile_tokens = decodes || cut.parts > 1 ? 1 : rows / cut.part_heads;
  cut.warps = (cut.tile_tokens * cut.part_heads + tiles::kRows - 1) / tiles::kRows;
  cut.tiles = batch.num_tokens / cut.tile_tokens + batch.num_sequences;
  const int64_t full_tiles = (batch.num_tokens + cut.tile_tokens - 1) / cut.tile_tokens;
  const int64_t ctas = std::max<int64_t>(1, full_tiles * batch.num_kv_heads * cut.parts);
  const int64_t wanted = int64_t{Multiprocessors()} * (cut.warps == 1 ? 12 : 4) / ctas;
  const int64_t most = batch.table_columns * batch.block_size / kFewestKeys;
  cut.splits =
      static_cast<int>(std::max<int64_t>(1, std::min({wanted, most, int64_t{kMostSplits}})));
  return cut;
}

AttentionWorkspace WorkspaceOf(const PagedAttention& p, const AttentionCut& cut) {
  const int64_t rows = p.batch.num_tokens * p.batch.num_heads;
  AttentionWorkspace floats;
  if (p.transforms_query()) floats.rotated_query = rows * p.batch.head_size;
  if (cut.splits > 1) {
    floats.partial_values = cut.splits * rows * p.batch.head_size;
    floats.partial_sums = cut.splits * rows * 2;
  }
  return floats;
}

Error LaunchPagedAttention(const PagedAttention& p, const AttentionCut& cut, Stream stream) {
  if (p.batch.num_tokens == 0 || p.batch.num_heads == 0 || p.batch.head_size == 0) return 0;
  if (p.transforms_query()) {
    if (const Error error = LaunchQueryTransform(p, stream); error != 0) return error;
  }
  if (const Error error = LaunchTiles(p, cut, stream); error != 0) return error;
  return cut.splits > 1 ? LaunchAttentionJoin(p, cut.splits, stream) : 0;
}

}  // namespace pagefuse::cuda
