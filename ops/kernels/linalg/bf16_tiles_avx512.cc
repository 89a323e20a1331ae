// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/linalg/bf16_dots.h"
#include "pagefuse/ops/kernels/linalg/bf16_tiles_kernels.h"

namespace pagefuse {

#if defined(__x86_64__)

namespace {

// Rows [row, row + kRows) of the sums.
template <int kRows, int kBlocks>
void Rows(const TileBlock& block, const TileSums& sums, int64_t row) {
  DotTiles<kRows, kBlocks>({.a = sums.a + row * kTileDepth,
                            .b = sums.b[0],
                            .b_stride = sums.b[1] - sums.b[0],
                            .k_tiles = block.k_tiles,
                            .accumulate = block.accumulate,
                            .c = sums.c[0] + row * kTileColumns,
                            .c_stride = sums.c[1] - sums.c[0],
                            .coming = sums.coming.Part(row / kRows, kTileRows / kRows)});
}

}  // namespace

void Avx512Product(const TileBlock& block, const TileSums& sums) {
  if (sums.c[0] == sums.c[1]) return Rows<kTileRows, 1>(block, sums, 0);
  constexpr int kRows = kTileRows / 2;  // of two tiles: as many sums as registers hold
  Rows<kRows, 2>(block, sums, 0);
  Rows<kRows, 2>(block, sums, kRows);
}

#endif

}  // namespace pagefuse
