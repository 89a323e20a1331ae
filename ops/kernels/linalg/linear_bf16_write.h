// SPDX-License-Identifier: Apache-2.0
// How kernels that make tiles of y store them. For files that use AVX-512 intrinsics.
#pragma once

#if defined(__x86_64__)

#include <algorithm>
#include <cstring>

#include "pagefuse/ops/kernels/linalg/bf16_tiles.h"
#include "pagefuse/ops/kernels/linalg/linear_bf16_kernels.h"
#include "pagefuse/ops/kernels/linalg/x86_intrinsics.h"

namespace pagefuse {

// Where a finished tile row goes: `count` column blocks from `block`, rows [first, first + rows).
struct TileTarget {
  int64_t first;
  int64_t rows;
  int64_t block;
  int64_t count;
};

PF_AVX512 inline void WriteTiles(const Bf16Product& product, const TileTarget& target,
                                 float (*tiles)[kTileFloats]) {
  const Bf16Source& w = *product.weight;
  const int64_t step = w.gated() ? 2 : 1;
  for (int64_t c = 0; c < target.count; c += step) {
    const int64_t column = (target.block + c) / step * kTileColumns;
    const int64_t columns = std::min(kTileColumns, w.n() - column);
    if (w.gated()) {
      GatedProduct(product.gate, tiles[c], tiles[c + 1], target.rows * kTileColumns, tiles[c]);
    }
    float* y = product.y.data + target.first * product.y.stride + column;
    const float* tile = tiles[c];
    if (columns == kTileColumns) {  // one store a row rather than a call
      for (int64_t r = 0; r < target.rows; ++r) {
        _mm512_storeu_ps(y + r * product.y.stride, _mm512_load_ps(tile + r * kTileColumns));
      }
      continue;
    }
    for (int64_t r = 0; r < target.rows; ++r) {
      std::memcpy(y + r * product.y.stride, tile + r * kTileColumns, columns * sizeof(float));
    }
  }
}

}  // namespace pagefuse

#endif  // __x86_64__
