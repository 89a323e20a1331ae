// SPDX-License-Identifier: Apache-2.0
// What a CTA of the plain attention kernel computes, and what it has in shared memory: its rows and their queries, and a tile of decoded keys or
// values. Device code: for .cu files.
#pragma once

#include <algorithm>

#include "pagefuse/ops/kernels/cuda/attention_copy.h"
#include "pagefuse/ops/kernels/cuda/attention_rows.h"

namespace pagefuse::cuda::tiles {

constexpr int kRows = kAttentionRows;
constexpr int kKeys = kAttentionKeys;
constexpr int kMostWarps = 4;

// Floats of a row: whole vectors, and rows of a tile that lie in different banks.
constexpr int QueryStride(int head_size) { return (head_size + 3) / 4 * 4; }
constexpr int TileStride(int head_size) { return QueryStride(head_size) + 4; }

// A row of a task.
struct Row {
  int64_t output;  // its number among [T, Hq]; -1: there is none
  int head;        // of the query
  int token;       // in the sequence
  int position;    // of the token
  int begin, end;  // keys that it sees, but for ranges
};

// How a CTA's shared memory is laid out.
struct TileShape {
  int head_size = 0, warps = 0;
  int key_bytes = 0, value_bytes = 0;  // of a row of the cache
  bool direct = false;                 // rows are floats as they are: nothing is decoded
  // Tiles of rows as the cache has them. 2: values come while keys are computed, and keys while values are; 0: rows are decoded from the cache.
  int copies = 2;

  constexpr bool overlaps() const { return copies == 2; }
  constexpr int key_stride() const {
    return direct ? 4 * TileStride(head_size) : (key_bytes + 15) / 16 * 16;
  }
  constexpr int value_stride() const {
    return direct ? 4 * TileStride(head_size) : (value_bytes + 15) / 16 * 16;
  }
  // Offsets.
  constexpr int tile() const { return 0; }  // [kKeys][TileStride], float
  constexpr int keys() const { return direct ? 0 : 4 * kKeys * TileStride(head_size); }
  constexpr int values() const { return keys() + (overlaps() ? kKeys * key_stride() : 0); }
  constexpr int query() const {
    if (copies == 0) return keys();
    return keys() + (overlaps() ? kKeys * (key_stride() + value_stride())
                                : kKeys * std::max(key_stride(), value_stride()));
  }
  constexpr int weights() const { return query() + 4 * warps * kRows * QueryStride(head_size); }
  constexpr int factors() const { return weights() + 4 * warps * kKeys * kRows; }
  constexpr int rows() const { return factors() + 4 * kKeys; }
  constexpr int bytes() const { return rows() + warps * kRows * static_cast<int>(sizeof(Row)); }

  static constexpr TileShape Of(const PagedAttention& p, int warps, int copies) {
    TileShape shape;
    shape.head_size = static_cast<int>(p.batch.head_size);
    shape.warps = warps;
    shape.copies = copies;
    if (p.is_turboquant) {
      shape.key_bytes = static_cast<int>(p.slot.KeyBytes());
      shape.value_bytes = static_cast<int>(p.slot.ValueBytes());
      return shape;
    }
    const bool narrow = p.element == DataType::kFloat16 || p.element == DataType::kBfloat16;
    const int element = p.element == DataType::kFloat ? 4 : narrow ? 2 : 1;
    const bool nibbles = p.mode == KvQuantMode::kInt4PerTokenHead;
    shape.key_bytes = shape.value_bytes = nibbles ? shape.head_size / 2 : shape.head_size * element;
    shape.direct = copies > 0 && p.element == DataType::kFloat &&
                   p.compute_type == DataType::kFloat && shape.head_size % 4 == 0;
    return shape;
  }
  // With as many copies as a CTA has room for, `least` or more.
  static constexpr TileShape Within(int most_bytes, const PagedAttention& p, int warps, int least) {
    int copies = 2;
    while (copies > least && Of(p, warps, copies).bytes() > most_bytes) --copies;
    return Of(p, warps, copies);
  }
};

// Of rows of up to 128 * chunks elements: copies that every device has room for.
template <int chunks>
inline constexpr int kLeastCopies = chunks <= 2 ? 1 : 0;
static_assert(TileShape{.head_size = 256,
                        .warps = kMostWarps,
                        .key_bytes = 1024,
                        .value_bytes = 1024,
                        .copies = kLeastCopies<2>}
                  .bytes() <= 99 << 10);

struct SharedTile {
  uint8_t* keys;  // [kKeys] rows as the cache has them
  uint8_t* values;
  float* tile;     // [kKeys][TileStride]: decoded keys, or values
  float* query;    // [warps * kRows][QueryStride]
  float* weights;  // [warps][kKeys][kRows]
  float* factors;  // [kKeys]
  Row* rows;       // [warps * kRows]
};

__device__ inline SharedTile PlaceShared(const TileShape& shape) {
  extern __shared__ float4 attention_shared[];
  auto* base = reinterpret_cast<uint8_t*>(attention_shared);
  const auto floats = [&](int offset) { return reinterpret_cast<float*>(base + offset); };
  SharedTile shared;
  shared.keys = base + shape.keys();
  shared.values = base + shape.values();
  shared.tile = floats(shape.tile());
  shared.query = floats(shape.query());
  shared.weights = floats(shape.weights());
  shared.factors = floats(shape.factors());
  shared.rows = reinterpret_cast<Row*>(base + shape.rows());
  return shared;
}

// What a CTA computes.
struct Task {
  int64_t b;
  int first;   // its first token in the sequence
  int tokens;  // how many
  int kv_head;
  int first_head;  // in the group
  int heads;
};

// Of a tile of the cut; false: it is empty.
__device__ inline bool FindTask(const PagedAttention& p, const AttentionCut& cut, int64_t tile,
                                Task& task) {
  int64_t low = 0, high = p.batch.num_sequences;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    if (AttentionCut::FirstTile(p.batch, cut.tile_tokens, middle) <= tile) {
      low = middle;
    } else {
      high = middle;
    }
  }
  const int64_t first_tile = AttentionCut::FirstTile(p.batch, cut.tile_tokens, low);
  const int64_t first = (tile - first_tile) * cut.tile_tokens;
  const int64_t left = p.batch.num_queries(low) - first;
  if (left <= 0) return false;
  task.b = low;
  task.first = static_cast<int>(first);
  task.tokens = static_cast<int>(min(left, static_cast<int64_t>(cut.tile_tokens)));
  task.kv_head = static_cast<int>(blockIdx.y) / cut.parts;
  task.first_head = static_cast<int>(blockIdx.y) % cut.parts * cut.part_heads;
  task.heads = min(cut.part_heads, static_cast<int>(p.batch.group()) - task.first_head);
  return true;
}

__device__ inline Row RowOf(const PagedAttention& p, const Task& task, int r) {
  Row row = {};
  row.output = -1;
  if (r >= task.tokens * task.heads) return row;
  row.token = task.first + r / task.heads;
  row.head = task.kv_head * static_cast<int>(p.batch.group()) + task.first_head + r % task.heads;
  row.position = static_cast<int>(p.batch.context(task.b)) + row.token;
  row.output = (p.batch.first_token(task.b) + row.token) * p.batch.num_heads + row.head;
  const KeyInterval base = p.batch.BaseAt(task.b, row.position);
  row.begin = static_cast<int>(base.begin);
  row.end = static_cast<int>(base.end);
  return row;
}

// The rows of a warp, and their queries.
__device__ inline void LoadRows(const PagedAttention& p, const Task& task,
                                const SharedTile& shared) {
  const int n = static_cast<int>(p.batch.head_size);
  const int stride = QueryStride(n);
  const int first = static_cast<int>(threadIdx.x) / kWarp * kRows;
#pragma unroll 1
  for (int r = first; r < first + kRows; ++r) {
    const Row row = RowOf(p, task, r);
    if (LaneId() == 0) shared.rows[r] = row;
    float* to = shared.query + r * stride;
    if (row.output < 0) {
      for (int d = LaneId(); d < n; d += kWarp) to[d] = 0;
    } else if (p.transforms_query()) {
      LoadRow(p.rotated_query + row.output * n, n, to);
    } else {
      LoadQuery(p, row.output, to);
    }
    for (int d = n + LaneId(); d < stride; d += kWarp) to[d] = 0;
  }
  __syncwarp();
}

// The keys that a CTA reads: its split of what its rows see.
__device__ inline KeyInterval KeysOf(const PagedAttention& p, const Task& task, int splits) {
  const int64_t from = p.batch.context(task.b) + task.first;
  KeyInterval all = p.batch.HullOf(task.b, from, from + task.tokens - 1);
  all = all.Intersect({0, min(p.batch.length(task.b), p.batch.table_columns * p.batch.block_size)});
  if (all.empty()) return {};
  const int64_t count = all.end - all.begin;
  const int64_t part = (count + splits * kKeys - 1) / (splits * kKeys) * kKeys;
  const int64_t begin = all.begin + blockIdx.z * part;
  return {begin, min(all.end, begin + part)};
}

// Of this lane's key of a tile: where it is, and its scales where rows have some.
struct TileKey {
  int block = -1;  // negative: there is none
  int row = 0;
  float key_scale = 0, value_scale = 0;
};
__device__ inline TileKey KeyOf(const PagedAttention& p, const Task& task, int64_t first,
                                int64_t end) {
  TileKey found;
  const int64_t key = first + LaneId();
  if (key >= end) return found;
  const auto block_size = static_cast<int>(p.batch.block_size);
  const int column = static_cast<int>(key) / block_size;
  found.row = static_cast<int>(key) % block_size;
  found.block = p.batch.block_table[task.b * p.batch.table_columns + column];
  if (found.block < 0 || found.block >= p.batch.num_blocks) return {};
  if (p.is_turboquant || p.keys.scales == nullptr) return found;
  found.key_scale = LoadFloatBytes(p.keys.At(found.block, found.row, task.kv_head).scale);
  found.value_scale = LoadFloatBytes(p.values.At(found.block, found.row, task.kv_head).scale);
  return found;
}

// Begins to copy a row by one warp; `to` is aligned to 16.
__device__ inline void CopyRow(uint8_t* to, const uint8_t* from, int bytes) {
  const auto at = reinterpret_cast<uintptr_t>(from);
  if (at % 16 == 0 && bytes % 16 == 0) {
    for (int i = 16 * LaneId(); i < bytes; i += 16 * kWarp) ptx::CopyAsync16(to + i, from + i);
  } else if (at % 4 == 0 && bytes % 4 == 0) {
    for (int i = 4 * LaneId(); i < bytes; i += 4 * kWarp) CopyAsync4(to + i, from + i);
  } else {
    for (int i = LaneId(); i < bytes; i += kWarp) to[i] = from[i];
  }
}

// Begins to copy the keys, or the values, that this warp will decode.
template <int least_copies>
__device__ void CopyTile(const PagedAttention& p, const TileShape& shape, bool are_keys,
                         int kv_head, const TileKey& key, const SharedTile& shared) {
  if (least_copies == 0 && shape.copies == 0) return;
  const CacheRows& rows = are_keys ? p.keys : p.values;
  uint8_t* to = are_keys ? shared.keys : shared.values;
  const int stride = are_keys ? shape.key_stride() : shape.value_stride();
  const int bytes = are_keys ? shape.key_bytes : shape.value_bytes;
#pragma unroll 1
  for (int k = static_cast<int>(threadIdx.x) / kWarp; k < kKeys; k += shape.warps) {
    const int block = __shfl_sync(kAllLanes, key.block, k);
    const int row = __shfl_sync(kAllLanes, key.row, k);
    if (block >= 0) CopyRow(to + k * stride, rows.At(block, row, kv_head).data, bytes);
  }
  ptx::CommitCopies();
}

// Decodes them.
template <int least_copies>
__device__ void DecodeTile(const PagedAttention& p, const TileShape& shape, bool are_keys,
                           int kv_head, const TileKey& key, const SharedTile& shared) {
  const int stride = TileStride(shape.head_size);
  const uint8_t* from = are_keys ? shared.keys : shared.values;
  const int from_stride = are_keys ? shape.key_stride() : shape.value_stride();
  const float own_scale = are_keys ? key.key_scale : key.value_scale;
#pragma unroll 1
  for (int k = static_cast<int>(threadIdx.x) / kWarp; k < kKeys; k += shape.warps) {
    const int block = __shfl_sync(kAllLanes, key.block, k);
    const float scale = __shfl_sync(kAllLanes, own_scale, k);
    if (block < 0) continue;
    float factor = 1;
    if (!shape.direct) {
      float* to = shared.tile + k * stride;
      const uint8_t* row = from + k * from_stride;
      if (least_copies == 0 && shape.copies == 0) {
        const CacheRows& rows = are_keys ? p.keys : p.values;
        row = rows.At(block, __shfl_sync(kAllLanes, key.row, k), kv_head).data;
      }
      factor = DecodeRow(p, are_keys, row, scale, to);
      for (int d = shape.head_size + LaneId(); d < stride; d += kWarp) to[d] = 0;
    }
    if (LaneId() == 0) shared.factors[k] = factor;
  }
}

}  // namespace pagefuse::cuda::tiles
