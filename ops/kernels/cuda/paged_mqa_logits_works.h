// SPDX-License-Identifier: Apache-2.0
// How the tiles of paged index scores are shared out among blocks of threads. Compiles for host and device.
#pragma once

#include <cstdint>

#include "pagefuse/ops/kernels/cuda/mqa_logits_rows.h"

namespace pagefuse::cuda {

inline constexpr int kPagedTile = 64;          // keys
inline constexpr int kMostPagedRows = 2;       // of a sequence, which see each tile together
inline constexpr int kMostPagedGroups = 2040;  // of rows: one table of them fits into shared memory

// Rows that see the same tiles of keys: neighbours of one sequence where each has as many, else one row.
struct PagedGroup {
  int64_t row = 0;
  int rows = 1;
  int64_t sequence = 0;
  int keys = 0, tiles = 0;  // that any of them sees
};

constexpr int64_t PagedGroupsOf(const MqaLogits& call) {
  if (call.starts != nullptr) return call.rows;
  return call.rows / call.queries * ((call.queries + kMostPagedRows - 1) / kMostPagedRows);
}

constexpr PagedGroup PagedGroupAt(const MqaLogits& call, int64_t index) {
  PagedGroup group{.row = index};
  if (call.starts == nullptr) {
    const int64_t groups = (call.queries + kMostPagedRows - 1) / kMostPagedRows;
    const int64_t first = index % groups * kMostPagedRows;
    group.row = index / groups * call.queries + first;
    group.rows = static_cast<int>(call.queries - first < kMostPagedRows ? call.queries - first
                                                                        : kMostPagedRows);
  }
  // The last one sees most.
  const MqaRow last = RowOf(call, group.row + group.rows - 1);
  group.sequence = last.sequence;
  group.keys = static_cast<int>(last.end);
  group.tiles = (group.keys + kPagedTile - 1) / kPagedTile;
  return group;
}

// The group of tile `tile` of all: the last one that begins there or before, of those with tiles. begins[i] is
// the number of tiles of the groups before group i, of `groups` and one more.
constexpr int GroupOfTile(const int32_t* begins, int groups, int tile) {
  int low = 0, high = groups;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (begins[middle] <= tile ? low : high) = middle;
  }
  return low;
}

// Keys that one copy brings: those of a tile that lie in one block.
constexpr int KeysOfCopy(int64_t block_size) {
  return block_size < kPagedTile ? static_cast<int>(block_size) : kPagedTile;
}

// Where the codes of a query lie in a tile of halves, [head][element] in two halves of 64 elements: in the order in which the lanes of a
// warp hold the elements of a key. Element d = 32 t + 16 i + 4 w + 2 h + (0 or 1) is column 2 t + 8 h of step 4 i + w. Bytes, of elements d
// and d + 1; pieces of 16 bytes are exchanged by 128-byte swizzle.
constexpr int PagedQueryPlace(int head, int d, int heads) {
  const int t = d / 32, i = d / 16 % 2, w = d / 4 % 4, h = d / 2 % 2;
  const int column = (4 * i + w) * 16 + h * 8 + 2 * t + d % 2;
  const int half = column / 64, byte = column % 64 * 2;
  return half * heads * 128 + head * 128 + ((byte / 16 ^ head % 8) * 16 + byte % 16);
}

}  // namespace pagefuse::cuda
