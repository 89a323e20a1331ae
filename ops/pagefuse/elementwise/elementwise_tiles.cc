// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/pagefuse/elementwise/elementwise_tiles.h"

#include <algorithm>

namespace pagefuse::pagefuse_ops {
namespace {

// What is alive of a tile stays in the second level of the cache, and most of it in the first:
// 16 KiB of floats for each value. Kernels do not fork for so few elements.
constexpr int64_t kTileElements = 4096;
// Rows as long as that are tiles by themselves: operands that are repeated along them are then one
// element or the whole of a tile, which is the kernels' fast case.
constexpr int64_t kLongRow = 512;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

TilePlan::TilePlan(const std::vector<int64_t>& output,
                   const std::vector<std::vector<int64_t>>& operands)
    : plan_(output, operands), axis_(plan_.dims().size() - 1) {
  const std::vector<int64_t>& dims = plan_.dims();
  while (axis_ > 0 && inner_ * dims[axis_] < kLongRow) inner_ *= dims[axis_--];
  blocks_ = CeilDiv(dims[axis_] * inner_, kTileElements);
  rows_ = CeilDiv(dims[axis_], blocks_);
  // Parts of a row start where vectors do.
  constexpr int64_t kAlignment = 64;
  if (inner_ == 1 && blocks_ > 1) rows_ = CeilDiv(rows_, kAlignment) * kAlignment;
  blocks_ = CeilDiv(dims[axis_], rows_);
  num_tiles_ = plan_.size() / (dims[axis_] * inner_) * blocks_;
}

TilePlan::Tile TilePlan::At(int64_t index) const {
  const int64_t size = plan_.dims()[axis_];
  const int64_t row = index % blocks_ * rows_;
  return {(index / blocks_ * size + row) * inner_, std::min(rows_, size - row)};
}

std::vector<bool> TilePlan::RepeatsOf(size_t k) const {
  std::vector<bool> repeats;
  for (size_t axis = axis_; axis < plan_.dims().size(); ++axis) {
    repeats.push_back(plan_.repeats(axis, k));
  }
  return repeats;
}

std::vector<int64_t> TilePlan::DimsOf(const Tile& tile, const std::vector<bool>& repeats) const {
  std::vector<int64_t> dims = {tile.rows};
  dims.insert(dims.end(), plan_.dims().begin() + static_cast<int64_t>(axis_) + 1,
              plan_.dims().end());
  for (size_t axis = 0; axis < dims.size(); ++axis) {
    if (repeats[axis]) dims[axis] = 1;
  }
  return dims;
}

}  // namespace pagefuse::pagefuse_ops
