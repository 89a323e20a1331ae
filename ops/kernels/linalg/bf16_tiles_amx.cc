// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/linalg/amx_tiles.h"
#include "pagefuse/ops/kernels/linalg/bf16_tiles_kernels.h"

namespace pagefuse {

#if defined(__x86_64__)

namespace {

using amx::kTileStride;

// The sums lie anywhere, so that tiles 0 to 3 have addresses of their own.
PF_AMX inline void BeginSums(const TileBlock& block) {
  if (!block.accumulate) {
    amx::ZeroSums();
    return;
  }
  _tile_loadd(0, block.c[0], kTileStride);
  _tile_loadd(1, block.c[1], kTileStride);
  _tile_loadd(2, block.c[2], kTileStride);
  _tile_loadd(3, block.c[3], kTileStride);
}

PF_AMX inline void EndSums(const TileBlock& block) {
  _tile_stored(0, block.c[0], kTileStride);
  _tile_stored(1, block.c[1], kTileStride);
  _tile_stored(2, block.c[2], kTileStride);
  _tile_stored(3, block.c[3], kTileStride);
}

}  // namespace

PF_AMX void BeginAmxProducts() {
  amx::TileConfig config;
  for (int t = 0; t < 8; ++t) config.SetRows(t, kTileRows);
  amx::LoadConfig(config);
}

PF_AMX void EndAmxProducts() { amx::ReleaseTiles(); }

PF_AMX void AmxProduct2x2(const TileBlock& block) {
  BeginSums(block);
  for (int64_t k = 0; k < block.k_tiles; ++k) {
    const int64_t i = k * kTileWords;
    block.coming.Ask(k);
    _tile_loadd(6, block.b[0] + i, kTileStride);
    _tile_loadd(4, block.a[0] + i, kTileStride);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, block.b[1] + i, kTileStride);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, block.a[1] + i, kTileStride);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  EndSums(block);
}

PF_AMX void AmxProduct4x1(const TileBlock& block) {
  BeginSums(block);
  for (int64_t k = 0; k < block.k_tiles; ++k) {
    const int64_t i = k * kTileWords;
    block.coming.Ask(k);
    _tile_loadd(4, block.b[0] + i, kTileStride);
    _tile_loadd(5, block.a[0] + i, kTileStride);
    _tile_dpbf16ps(0, 5, 4);
    _tile_loadd(6, block.a[1] + i, kTileStride);
    _tile_dpbf16ps(1, 6, 4);
    _tile_loadd(7, block.a[2] + i, kTileStride);
    _tile_dpbf16ps(2, 7, 4);
    _tile_loadd(5, block.a[3] + i, kTileStride);
    _tile_dpbf16ps(3, 5, 4);
  }
  EndSums(block);
}

PF_AMX void AmxProduct1x4(const TileBlock& block) {
  BeginSums(block);
  for (int64_t k = 0; k < block.k_tiles; ++k) {
    const int64_t i = k * kTileWords;
    block.coming.Ask(k);
    _tile_loadd(4, block.a[0] + i, kTileStride);
    _tile_loadd(5, block.b[0] + i, kTileStride);
    _tile_dpbf16ps(0, 4, 5);
    _tile_loadd(6, block.b[1] + i, kTileStride);
    _tile_dpbf16ps(1, 4, 6);
    _tile_loadd(7, block.b[2] + i, kTileStride);
    _tile_dpbf16ps(2, 4, 7);
    _tile_loadd(5, block.b[3] + i, kTileStride);
    _tile_dpbf16ps(3, 4, 5);
  }
  EndSums(block);
}

#endif

}  // namespace pagefuse
