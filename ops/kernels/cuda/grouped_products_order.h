// SPDX-License-Identifier: Apache-2.0
// Which rows of a grouped product ask for one expert.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pagefuse/ops/kernels/cuda/grouped_products.h"

namespace pagefuse::cuda {

// Rows of one expert that a block multiplies: RowOrder::rows from `first` on. One without rows is not used.
struct alignas(16) ExpertTile {
  int32_t expert = 0;  // -1: of none, as their ids are out of range
  int32_t first = 0, count = 0;
};

// As kernels are given it.
struct RowOrder {
  const void* ids = nullptr;
  bool wide_ids = false;
  int experts = 0, repeat = 1;
  // Null: each row is a tile of its own.
  const ExpertTile* tiles = nullptr;
  const int32_t* rows = nullptr;  // expert by expert
  IndexErrors errors = {};
  int ids_input = 0;

#ifdef __CUDACC__
  // -1 if the id is out of range, which `tells` says too.
  __device__ int ExpertOf(int row, bool tells) const {
    const int64_t id =
        wide_ids ? static_cast<const int64_t*>(ids)[row] : static_cast<const int32_t*>(ids)[row];
    const int64_t expert = id < 0 ? id + experts : id;
    if (expert >= 0 && expert < experts) return static_cast<int>(expert);
    if (tells) errors.Tell(ids_input, row, id);
    return -1;
  }
  // `tells`: of one thread of all that ask for the tile.
  __device__ ExpertTile TileAt(int tile, bool tells) const {
    if (tiles != nullptr) return tiles[tile];
    return {ExpertOf(tile, tells), tile, 1};
  }
  // Of y, and of x.
  __device__ int RowAt(const ExpertTile& tile, int i) const {
    return tiles == nullptr ? tile.first : rows[tile.first + i];
  }
  __device__ int SourceRowAt(const ExpertTile& tile, int i) const {
    return RowAt(tile, i) / repeat;
  }
#endif
};

// The most tiles of so many rows that there can be; 1: one a row, which nothing needs to make.
int64_t ExpertTiles(const GroupedProductParams& params, int tile_rows);

size_t RowOrderBytes(const GroupedProductParams& params, int tile_rows);
// Makes the tiles in `scratch`, RowOrderBytes(params, tile_rows) bytes.
Error LaunchRowOrder(const GroupedProductParams& params, int tile_rows, void* scratch,
                     RowOrder& order, Stream stream);

}  // namespace pagefuse::cuda
