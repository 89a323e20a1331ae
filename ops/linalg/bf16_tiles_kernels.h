// The implementations of bf16_tiles.h, one for each unit.
#pragma once

#include "pagefuse/ops/linalg/bf16_tiles.h"

namespace pagefuse {

// Bf16Unit::kAmx.
void BeginAmxProducts();
void EndAmxProducts();
void AmxProduct2x2(const TileBlock& block);
void AmxProduct4x1(const TileBlock& block);
void AmxProduct1x4(const TileBlock& block);

// c = a b, or c + a b: one sum over the tiles of an operand. Bf16Unit::kAvx512.
struct TileSum {
  const uint16_t* a;
  const uint16_t* b;
  float* c;
};
void Avx512Product(const TileBlock& block, const TileSum& sum);

}  // namespace pagefuse
