// SPDX-License-Identifier: Apache-2.0
// Cuts a broadcast into tiles that lie in one piece, in the output and in every operand.
#pragma once

#include <cstdint>
#include <vector>

#include "pagefuse/ops/onnx/broadcast.h"

namespace pagefuse::pagefuse_ops {

// A tile is some rows of one axis of the merged broadcast with all that is inside of them: a box
// whose dims before that axis are 1.
class TilePlan {
 public:
  TilePlan(const std::vector<int64_t>& output, const std::vector<std::vector<int64_t>>& operands);

  int64_t num_tiles() const { return num_tiles_; }
  int64_t tile_size() const { return rows_ * inner_; }  // elements of the largest

  struct Tile {
    int64_t position;  // its first output element
    int64_t rows;      // of the axis
  };
  Tile At(int64_t index) const;
  // The first element of each operand's part of it.
  void OffsetsAt(const Tile& tile, std::vector<int64_t>& offsets) const {
    plan_.OffsetsAt(tile.position, offsets);
  }

  // By axis of a tile: whether operand `k` is repeated along it.
  std::vector<bool> RepeatsOf(size_t k) const;
  // The dims of a tile's part of a value that is repeated along those axes.
  std::vector<int64_t> DimsOf(const Tile& tile, const std::vector<bool>& repeats) const;

 private:
  onnx_ops::BroadcastPlan plan_;
  size_t axis_;
  int64_t inner_ = 1;   // elements of a row
  int64_t rows_ = 1;    // of a tile
  int64_t blocks_ = 1;  // tiles along the axis
  int64_t num_tiles_ = 0;
};

}  // namespace pagefuse::pagefuse_ops
