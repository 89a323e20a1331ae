// SPDX-License-Identifier: Apache-2.0
// Float32 products whose sums stay in registers, tile by tile, with W packed into panels: for many
// rows of x, and for a transposed W. A few rows by a W [k, n] are for stream_f32_hwy.h; both add in
// the same order.
#pragma once

#include <cstdint>

#include "pagefuse/ops/kernels/linalg/matrix.h"

namespace pagefuse {

// How a product is cut, beside its sizes. In each chunk of k a sum starts at 0 and takes the products
// one by one as k ascends; the sums of the chunks are added in their order. Blocks do not show in
// results: what is taken of x and W at a time, so that a part of it stays in a first-level cache.
struct TileCut {
  int64_t begin, end;  // columns of W
  int64_t
      chunk_rows;  // along k, as block_rows; the last chunk may have fewer, and the last block of
                   // each
  int64_t block_rows() const;

  int64_t columns() const { return end - begin; }
};

// Rows of x and columns of W that one call is best for: what it reads again and again then stays in
// a second-level cache. Ranges of a multiple of kTileColumns columns leave no panel half empty.
inline constexpr int64_t kTileRows = 264;
inline constexpr int64_t kTileColumns = 32, kMaxTileColumns = 128;

// Rows of x: as they come, or laid out.
struct TileRows {
  RowsView x;
  // Laid out, with x.m rows of `all`, from row `first` on: the block that begins at k lies from
  // laid[all * k] on, row after row.
  const float* laid = nullptr;
  int64_t all = 0, first = 0;
};

// Whether rows pay for being laid out: many, which are read again and again, and lie so far apart
// that they would take each other's places in a cache.
bool WantLayOut(const RowsView& x);
// Lays out rows [begin, end) of x [x.m, k] to `laid` [x.m * k].
void LayOutRows(const RowsView& x, int64_t k, int64_t chunk_rows, int64_t begin, int64_t end,
                float* laid);

// Floats of memory that MultiplyColumns needs for so many rows of x.
int64_t TileFloats(int64_t rows, const TileCut& cut);

// y [x.m, cut.columns()], at its corner, = x * those columns of W. A row has the same bits whatever
// the other rows and columns are. `memory` is the caller's, aligned to 64. k is not 0.
void MultiplyColumns(const TileRows& x, const WeightView& w, const TileCut& cut, float* memory,
                     const OutputView& y);

}  // namespace pagefuse
