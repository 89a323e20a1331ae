// SPDX-License-Identifier: Apache-2.0
// The implementations of bf16_tiles.h, one for each unit.
#pragma once

#include "pagefuse/ops/kernels/linalg/bf16_tiles.h"

namespace pagefuse {

// Bf16Unit::kAmx.
void BeginAmxProducts();
void EndAmxProducts();
void AmxProduct2x2(const TileBlock& block);
void AmxProduct4x1(const TileBlock& block);
void AmxProduct1x4(const TileBlock& block);

// c[j] = a b[j], or c[j] + a b[j]: two sums over the tiles of an operand, or one if both are the
// same. Bf16Unit::kAvx512.
struct TileSums {
  const uint16_t* a;
  const uint16_t* b[2];
  float* c[2];
  ComingRows coming = {};
};
void Avx512Product(const TileBlock& block, const TileSums& sums);

}  // namespace pagefuse
