// SPDX-License-Identifier: Apache-2.0
// What a CTA of the prompt kernel has in shared memory, and how it comes there: its rows with their queries, and tiles of keys and values. Device
// code: for .cu files.
#pragma once

#include <type_traits>

#include "pagefuse/ops/kernels/cuda/attention_tile.h"
#include "pagefuse/ops/kernels/cuda/paged_decode_queries.h"
#include "pagefuse/ops/kernels/cuda/paged_prefill.h"
#include "pagefuse/ops/kernels/cuda/paged_prefill_ptx.h"

namespace pagefuse::cuda {

template <bool is_bfloat, int size, bool is_exact>
struct PrefillTraits {
  static constexpr bool kIsBfloat = is_bfloat;
  static constexpr bool kExact = is_exact;
  static constexpr int kHeadSize = size;
  static constexpr PrefillTile kTile = PrefillTile::Of(is_bfloat, size, is_exact);
  static constexpr int kBlocks = kTile.blocks;
  static constexpr int kWarpRows = 16 * kBlocks;
  static constexpr int kKeys = kTile.keys;
  static constexpr int kParts = kTile.parts;
  static constexpr int kRowBytes = kTile.row_bytes();
  static constexpr int kPieces = kRowBytes / 16;  // of a row
  static constexpr int kThreads = kPrefillWarps * kWarp;
  static constexpr bool kHasFactors = is_exact && !is_bfloat;
};

// A row of the CTA: its number among [T, Hq], or -1, and the keys that it sees.
struct PrefillRow {
  int output, begin, end;
};
static_assert(sizeof(PrefillRow) == 12);

// The keys that a CTA goes through, a tile at a time.
struct PrefillKeys {
  const int32_t* table;  // the sequence's
  int kv_head;
  int begin, end;
  int all_begin, all_end;  // what all of its rows see

  __device__ static PrefillKeys Of(const PagedAttention& p, const tiles::Task& task, int splits) {
    const KeyInterval keys = tiles::KeysOf(p, task, splits);
    const int64_t first = p.batch.context(task.b) + task.first;
    return {p.batch.block_table + task.b * p.batch.table_columns,
            task.kv_head,
            static_cast<int>(keys.begin),
            static_cast<int>(keys.end),
            static_cast<int>(p.batch.BaseAt(task.b, first + task.tokens - 1).begin),
            static_cast<int>(p.batch.BaseAt(task.b, first).end)};
  }
  template <int keys>
  __device__ int CountTiles() const {
    return end <= begin ? 0 : (end - begin + keys - 1) / keys;
  }
  // Whether all rows see all keys of a tile.
  template <class Traits>
  __device__ bool AreSeen(int tile, uint64_t present) const {
    const int first = begin + tile * Traits::kKeys;
    return present == ~uint64_t{0} >> (64 - Traits::kKeys) && first >= all_begin &&
           first + Traits::kKeys <= all_end;
  }
};
static_assert(sizeof(PrefillKeys) == 32);

// Where a key and its value lie in the caches, in units of 16 bytes from the head's first; negative: nowhere.
struct KeyPlace {
  int key, value;
};

template <class Traits>
struct PrefillShared {
  static constexpr PrefillTile kTile = Traits::kTile;
  uint8_t* base;

  __device__ uint8_t* queries() const { return base; }
  __device__ uint8_t* keys(int stage) const {
    return base + kTile.stages() + stage * kTile.stage_bytes();
  }
  __device__ uint8_t* values(int stage) const { return keys(stage) + kTile.stage_bytes() / 2; }
  __device__ KeyPlace* places(int stage) const {
    return reinterpret_cast<KeyPlace*>(base + kTile.places()) + stage * Traits::kKeys;
  }
  __device__ PrefillRow* rows() const {
    return reinterpret_cast<PrefillRow*>(base + kTile.row_places());
  }
  __device__ float* factors() const { return reinterpret_cast<float*>(base + kTile.factors()); }
  // Bits of a tile's keys. Of four tiles, as one is told while others may still read of that two before it.
  __device__ uint32_t* present_words(int tile) const {
    return reinterpret_cast<uint32_t*>(base + kTile.present()) + tile % 4 * 2;
  }
  __device__ uint64_t present(int tile) const {
    const uint32_t* words = present_words(tile);
    return words[0] | (Traits::kKeys > kWarp ? uint64_t{words[1]} << 32 : 0);
  }
  __device__ PrefillKeys* task() const {
    return reinterpret_cast<PrefillKeys*>(base + kTile.task());
  }
  // All keys that some row of this warp sees lie between these.
  __device__ int2* seen() const {
    return reinterpret_cast<int2*>(base + kTile.seen()) + ptx::ThreadIndex() / kWarp;
  }

  // Of a row of queries, keys or values.
  static constexpr __device__ int Offset(int row, int piece) {
    return row * Traits::kRowBytes + (piece ^ row % 8) * 16;
  }
};

// Queries of 16 bits, by one warp.
template <class Traits>
__device__ void CopyQueries(const PagedAttention& p, PrefillShared<Traits> shared, int first) {
  const auto* query = static_cast<const uint8_t*>(p.query);
#pragma unroll 4
  for (int i = LaneId(); i < Traits::kWarpRows * Traits::kPieces; i += kWarp) {
    const int row = first + i / Traits::kPieces, piece = i % Traits::kPieces;
    const int output = shared.rows()[row].output;
    const int64_t from = static_cast<int64_t>(max(output, 0)) * Traits::kRowBytes + piece * 16;
    ptx::CopyAsync16(shared.queries() + shared.Offset(row, piece), query + from,
                     output < 0 ? 0 : 16);
  }
}

// Queries of floats in parts, by one warp.
template <class Traits>
__device__ void SplitQueries(const PagedAttention& p, PrefillShared<Traits> shared, int first) {
  constexpr int kPairs = Traits::kHeadSize / (2 * kWarp);
#pragma unroll 2
  for (int row = first; row < first + Traits::kWarpRows; ++row) {
    const int output = shared.rows()[row].output;
    const auto* query = static_cast<const float2*>(p.query) +
                        static_cast<int64_t>(output) * (Traits::kHeadSize / 2);
    float2 x[kPairs] = {};
    float scale = 1;
#pragma unroll
    for (int i = 0; i < kPairs && output >= 0; ++i) x[i] = query[LaneId() + kWarp * i];
    if constexpr (Traits::kHasFactors) {
      float largest = 0;
#pragma unroll
      for (const float2& pair : x) largest = fmaxf(largest, fmaxf(fabsf(pair.x), fabsf(pair.y)));
      const int exponent = HalfExponent(MaxOfLanes(largest));
      scale = __uint_as_float(static_cast<uint32_t>(127 + exponent) << 23);
      const float factor = __uint_as_float(static_cast<uint32_t>(127 - exponent) << 23);
      if (LaneId() == 0) shared.factors()[row] = factor;
    }
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      const int pair = LaneId() + kWarp * i;
      uint8_t* to = shared.queries() + shared.Offset(row, pair / 4) + pair % 4 * 4;
      float a = x[i].x * scale, b = x[i].y * scale;
#pragma unroll
      for (int part = 0; part < Traits::kParts; ++part) {
        const uint32_t packed = PackPair<Traits>(a, b);
        *reinterpret_cast<uint32_t*>(to + part * Traits::kTile.part_bytes()) = packed;
        TakePair<Traits>(packed, a, b);
      }
    }
  }
}

// The rows of this warp.
template <class Traits>
__device__ void LoadPrefillRows(const PagedAttention& p, const tiles::Task& task,
                                PrefillShared<Traits> shared) {
  const int first = static_cast<int>(threadIdx.x) / kWarp * Traits::kWarpRows;
  if (LaneId() < Traits::kWarpRows) {
    const tiles::Row row = tiles::RowOf(p, task, first + LaneId());
    shared.rows()[first + LaneId()] = {static_cast<int>(row.output), row.begin, row.end};
    // Both ends grow from row to row.
    if (LaneId() == 0) shared.seen()->x = row.begin, shared.seen()->y = row.end;
    __syncwarp(kAllLanes >> (kWarp - Traits::kWarpRows));
    const int last = min(task.tokens * task.heads - first, Traits::kWarpRows) - 1;
    if (LaneId() == last) shared.seen()->y = row.end;
  }
  __syncwarp();
  if constexpr (Traits::kExact) {
    SplitQueries<Traits>(p, shared, first);
  } else {
    CopyQueries<Traits>(p, shared, first);
  }
}

// The block of this thread's key of a tile; negative: there is no key.
template <int tile_keys>
__device__ int BlockOf(const PagedAttention& p, const PrefillKeys& keys, int tile) {
  const int i = ptx::ThreadIndex();
  const int key = keys.begin + tile * tile_keys + i;
  if (i >= tile_keys || key >= keys.end) return -1;
  const int block =
      keys.table[static_cast<unsigned>(key) / static_cast<unsigned>(p.batch.block_size)];
  return block < p.batch.num_blocks ? block : -1;
}

// Tells where the tile's keys lie, by what BlockOf gave.
template <class Traits>
__device__ void PlaceKeys(const PagedAttention& p, const PrefillKeys& keys, int tile, int block,
                          PrefillShared<Traits> shared) {
  const int i = ptx::ThreadIndex();
  if (i >= Traits::kKeys) return;
  const unsigned there = __ballot_sync(kAllLanes, block >= 0);
  if (i % kWarp == 0) shared.present_words(tile)[i / kWarp] = there;
  const auto key = static_cast<unsigned>(keys.begin + tile * Traits::kKeys + i);
  const auto row = static_cast<int>(key % static_cast<unsigned>(p.batch.block_size));
  const auto place_of = [&](const CacheRows& rows) {
    return block * static_cast<int>(rows.data_strides.block / 16) +
           row * static_cast<int>(rows.data_strides.row / 16);
  };
  shared.places(tile % 2)[i] =
      block < 0 ? KeyPlace{-1, -1} : KeyPlace{place_of(p.keys), place_of(p.values)};
}

// Elements of a word that are no finite numbers become 0. Returns whether there are some.
template <class Traits>
__device__ bool CleanWord(uint32_t& word) {
  // Exponents of both, and what carries over where all their bits are set.
  constexpr uint32_t kExponents = Traits::kIsBfloat ? 0x7F807F80 : 0x7C007C00;
  constexpr uint32_t kLowest = Traits::kIsBfloat ? 0x00800080 : 0x04000400;
  const uint32_t carries = ((word & kExponents) + kLowest) & 0x80008000;
  word &= ~((carries >> 15) * 0xFFFF);
  return carries != 0;
}

// f(row, offset) of each of this thread's pieces of a tile.
template <class Traits, class F>
__device__ void ForEachPiece(F f) {
  constexpr int kRows = Traits::kThreads / Traits::kPieces;  // at a time
  const int thread = ptx::ThreadIndex();
  const int piece = thread % Traits::kPieces, first = thread / Traits::kPieces;
#pragma unroll
  for (int i = 0; i < Traits::kKeys / kRows; ++i) {
    const int row = first + i * kRows;
    f(row, PrefillShared<Traits>::Offset(row, piece));
  }
}

// Copies a tile of keys and values. Rows of keys that are not there become zeros.
template <class Traits>
__device__ void CopyTile(const PagedAttention& p, int kv_head, PrefillShared<Traits> shared,
                         int stage) {
  const int64_t piece = ptx::ThreadIndex() % Traits::kPieces * 16;
  const uint8_t* keys = p.keys.data + kv_head * p.keys.data_strides.head + piece;
  const uint8_t* values = p.values.data + kv_head * p.values.data_strides.head + piece;
  const auto copy = [](uint8_t* to, const uint8_t* from, int place) {
    ptx::CopyAsync16(to, from + static_cast<int64_t>(max(place, 0)) * 16, place < 0 ? 0 : 16);
  };
  ForEachPiece<Traits>([&](int row, int offset) {
    const KeyPlace place = shared.places(stage)[row];
    copy(shared.keys(stage) + offset, keys, place.key);
    copy(shared.values(stage) + offset, values, place.value);
  });
}

// Of what this thread copied, once it is there: values that are no finite numbers become 0, as products with weights of 0 would be none either.
// Returns whether there are some.
template <class Traits>
__device__ bool CleanValues(PrefillShared<Traits> shared, int stage) {
  bool any = false;
  ForEachPiece<Traits>([&](int, int offset) {
    auto* piece = reinterpret_cast<uint4*>(shared.values(stage) + offset);
    uint4 words = *piece;
    bool found = CleanWord<Traits>(words.x);
    found |= CleanWord<Traits>(words.y);
    found |= CleanWord<Traits>(words.z);
    found |= CleanWord<Traits>(words.w);
    if (found) *piece = words;
    any |= found;
  });
  return any;
}

// Adds what CleanValues left out of the values of keys that a row sees to the row's values o, by one warp.
template <class Traits>
__device__ void AddBroken(const PagedAttention& p, const PrefillKeys& keys, const PrefillRow& row,
                          float* o) {
  using Format = std::conditional_t<Traits::kIsBfloat, Bfloat16Format, Float16Format>;
  const auto block_size = static_cast<int>(p.batch.block_size);
#pragma unroll 1
  for (int key = max(row.begin, keys.begin); key < min(row.end, keys.end); ++key) {
    const int block = keys.table[key / block_size];
    if (block < 0 || block >= p.batch.num_blocks) continue;
    const auto* from =
        reinterpret_cast<const uint16_t*>(p.values.At(block, key % block_size, keys.kv_head).data);
#pragma unroll 1
    for (int d = LaneId(); d < Traits::kHeadSize; d += kWarp) {
      const float v = DecodeFloat<Format>(from[d]);
      if (!(fabsf(v) < INFINITY)) o[d] += v;
    }
  }
  __syncwarp();
}

}  // namespace pagefuse::cuda
