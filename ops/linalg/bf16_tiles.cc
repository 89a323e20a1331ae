#include "pagefuse/ops/linalg/bf16_tiles.h"

#include <algorithm>

#include "pagefuse/ir/status_macros.h"
#include "pagefuse/ops/linalg/bf16_tiles_kernels.h"
#include "pagefuse/ops/linalg/cpu_features.h"

namespace pagefuse {

#if defined(__x86_64__)

namespace {

// Sum i of the block is a[of_a[i]] b[of_b[i]], one after the other. One that was given twice was
// made already: adding to it again would count it twice.
void Avx512Products(const TileBlock& block, const int (&of_a)[4], const int (&of_b)[4]) {
  for (int i = 0; i < 4; ++i) {
    if (std::find(block.c, block.c + i, block.c[i]) != block.c + i) continue;
    Avx512Product(block, {block.a[of_a[i]], block.b[of_b[i]], block.c[i]});
  }
}

}  // namespace

void BeginTileProducts() {
  if (HasAmxBf16()) BeginAmxProducts();
}

void EndTileProducts() {
  if (HasAmxBf16()) EndAmxProducts();
}

void TileProduct2x2(const TileBlock& block) {
  if (HasAmxBf16()) return AmxProduct2x2(block);
  Avx512Products(block, {0, 0, 1, 1}, {0, 1, 0, 1});
}

void TileProduct4x1(const TileBlock& block) {
  if (HasAmxBf16()) return AmxProduct4x1(block);
  Avx512Products(block, {0, 1, 2, 3}, {0, 0, 0, 0});
}

void TileProduct1x4(const TileBlock& block) {
  if (HasAmxBf16()) return AmxProduct1x4(block);
  Avx512Products(block, {0, 0, 0, 0}, {0, 1, 2, 3});
}

#else

void BeginTileProducts() { PF_CHECK(false); }
void EndTileProducts() {}
void TileProduct2x2(const TileBlock&) { PF_CHECK(false); }
void TileProduct4x1(const TileBlock&) { PF_CHECK(false); }
void TileProduct1x4(const TileBlock&) { PF_CHECK(false); }

#endif

}  // namespace pagefuse
