#include "pagefuse/ops/linalg/bf16_dots.h"
#include "pagefuse/ops/linalg/bf16_tiles_kernels.h"

namespace pagefuse {

#if defined(__x86_64__)

void Avx512Product(const TileBlock& block, const TileSum& sum) {
  DotTiles<kTileRows, 1>({.a = sum.a,
                          .b = sum.b,
                          .b_stride = 0,
                          .k_tiles = block.k_tiles,
                          .accumulate = block.accumulate,
                          .c = sum.c});
}

#endif

}  // namespace pagefuse
