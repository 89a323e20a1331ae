// SPDX-License-Identifier: Apache-2.0
// How the tiles of dense index scores are shared out among blocks of threads. Compiles for host and device.
#pragma once

#include <cstdint>

#include "pagefuse/ops/kernels/cuda/mqa_logits.h"

namespace pagefuse::cuda {

inline constexpr int kDenseQueries = 4, kDenseKeys = 64;  // of a tile
inline constexpr int kDenseConsumers = 2;                 // warp groups, which take turns at tiles

// What is shared out: tiles of 4 queries by tiles of keys, all keys of 4 queries after each other. A thread
// block's share begins and ends at any of them: shares are even, and each loads its queries once.
struct DenseWorks {
  int key_tiles = 0;  // of one tile of queries
  int64_t query_tiles = 0;
  int64_t count = 0;  // of tiles
};

constexpr DenseWorks DenseWorksOf(int64_t rows, int64_t width) {
  DenseWorks works;
  works.key_tiles = static_cast<int>((width + kDenseKeys - 1) / kDenseKeys);
  works.query_tiles = (rows + kDenseQueries - 1) / kDenseQueries;
  works.count = works.query_tiles * works.key_tiles;
  return works;
}

// Tiles of one share that have their queries in common: their queries and columns, and the tiles of keys among
// these that any of the rows sees.
struct DenseWork {
  int q0 = 0, n0 = 0, n1 = 0;
  int first = 0, end = 0;  // tiles of 64 keys of all
  int64_t next = 0;        // the tile of all where the work behind it begins
};

// Sets the tiles of a work whose queries and columns are known.
constexpr void FindTiles(const MqaLogits& call, DenseWork& work) {
  int begin = work.n1, end = work.n0;
  const int last = static_cast<int>(call.rows) - 1;
  // Rows that are not there are the last one once more: without branches all loads are on their way at once.
  int begins[kDenseQueries] = {}, ends[kDenseQueries] = {};
  for (int q = 0; q < kDenseQueries; ++q) {
    const int row = work.q0 + q < last ? work.q0 + q : last;
    begins[q] = call.begins[row], ends[q] = call.ends[row];
  }
  for (int q = 0; q < kDenseQueries; ++q) {
    const bool some = begins[q] < ends[q];
    begin = some && begins[q] < begin ? begins[q] : begin;
    end = some && ends[q] > end ? ends[q] : end;
  }
  begin = begin < work.n0 ? work.n0 : begin;
  end = end > work.n1 ? work.n1 : end;
  work.first = begin / kDenseKeys;
  work.end = begin < end ? (end + kDenseKeys - 1) / kDenseKeys : work.first;
}

// The tile of queries at place `i` of `count`: tiles of one share come from all quarters of the rows. Of causal rows the
// later ones see more keys: so shares remain about even.
constexpr int64_t QueryTileAt(int64_t i, int64_t count) {
  constexpr int kParts = 4;
  const int64_t part = count / kParts;
  return i < part * kParts ? i % kParts * part + i / kParts : i;
}

// The work that begins at `index`, of a share that ends at `end`: it goes no further than its tile of queries.
constexpr DenseWork DenseWorkAt(const MqaLogits& call, const DenseWorks& works, int64_t index,
                                int64_t end) {
  DenseWork work;
  const int64_t tile = index / works.key_tiles, behind = (tile + 1) * works.key_tiles;
  const auto first = static_cast<int>(index - tile * works.key_tiles);
  work.next = behind < end ? behind : end;
  work.q0 = static_cast<int>(QueryTileAt(tile, works.query_tiles)) * kDenseQueries;
  work.n0 = first * kDenseKeys;
  const int64_t n1 = work.n0 + (work.next - index) * kDenseKeys;
  work.n1 = static_cast<int>(n1 < call.width ? n1 : call.width);
  FindTiles(call, work);
  return work;
}

}  // namespace pagefuse::cuda
