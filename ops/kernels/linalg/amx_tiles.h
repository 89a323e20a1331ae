// SPDX-License-Identifier: Apache-2.0
// AMX bf16 tiles: their configuration, and a place for four tiles of sums. For files that use tile
// intrinsics; all of it needs HasAmxBf16().
#pragma once

#if defined(__x86_64__)

#include <cstdint>

#include "pagefuse/ops/kernels/linalg/bf16_tiles.h"
#include "pagefuse/ops/kernels/linalg/x86_intrinsics.h"

namespace pagefuse::amx {

#define PF_AMX __attribute__((target("amx-tile,amx-bf16,avx512f")))

inline constexpr int64_t kTileStride = 64;  // bytes of a row of a dense tile

// The operand of ldtilecfg (Intel SDM, volume 1, chapter 18).
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};

  void SetRows(int tile, int64_t count) {
    row_bytes[tile] = kTileStride;
    rows[tile] = static_cast<uint8_t>(count);
  }
};

PF_AMX inline void LoadConfig(const TileConfig& config) {
  // The intrinsic of GCC 12 tells the compiler of the first 8 bytes only.
  asm volatile("ldtilecfg %0" ::"m"(config));
}

// Clang compiles the body of a parallel region for the base target: no intrinsic may stand there.
PF_AMX inline void ReleaseTiles() { _tile_release(); }

// The four sum tiles, 16 rows of 16 floats each.
struct alignas(64) Stage {
  float tiles[4][kTileFloats];
};

// Tiles 0 to 3 from and to memory.
PF_AMX inline void LoadSums(const Stage& stage) {
  _tile_loadd(0, stage.tiles[0], kTileStride);
  _tile_loadd(1, stage.tiles[1], kTileStride);
  _tile_loadd(2, stage.tiles[2], kTileStride);
  _tile_loadd(3, stage.tiles[3], kTileStride);
}

PF_AMX inline void ZeroSums() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}

PF_AMX inline void StoreSums(Stage* stage) {
  _tile_stored(0, stage->tiles[0], kTileStride);
  _tile_stored(1, stage->tiles[1], kTileStride);
  _tile_stored(2, stage->tiles[2], kTileStride);
  _tile_stored(3, stage->tiles[3], kTileStride);
}

}  // namespace pagefuse::amx

#endif  // __x86_64__
