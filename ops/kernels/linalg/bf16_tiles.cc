// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/linalg/bf16_tiles.h"

#include <algorithm>
#include <initializer_list>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/kernels/linalg/bf16_tiles_kernels.h"
#include "pagefuse/ops/kernels/linalg/cpu_features.h"

namespace pagefuse {

#if defined(__x86_64__)

namespace {

// Sums i and j of the block are a[of_a] b[of_b[0]] and a[of_a] b[of_b[1]]; or i is j.
struct SumPair {
  int i, j;
  int of_a;
  int of_b[2];
};

// A sum that was given twice was made already: adding to it again would count it twice.
void Avx512Products(const TileBlock& block, std::initializer_list<SumPair> pairs) {
  const auto made = [&](int i) {
    return std::find(block.c, block.c + i, block.c[i]) != block.c + i;
  };
  int64_t part = 0;
  for (const SumPair& pair : pairs) {
    const ComingRows coming = block.coming.Part(part++, static_cast<int64_t>(pairs.size()));
    if (made(pair.i)) continue;
    Avx512Product(block, {.a = block.a[pair.of_a],
                          .b = {block.b[pair.of_b[0]], block.b[pair.of_b[1]]},
                          .c = {block.c[pair.i], block.c[pair.j]},
                          .coming = coming});
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
  Avx512Products(block, {{0, 1, 0, {0, 1}}, {2, 3, 1, {0, 1}}});
}

void TileProduct4x1(const TileBlock& block) {
  if (HasAmxBf16()) return AmxProduct4x1(block);
  Avx512Products(block,
                 {{0, 0, 0, {0, 0}}, {1, 1, 1, {0, 0}}, {2, 2, 2, {0, 0}}, {3, 3, 3, {0, 0}}});
}

void TileProduct1x4(const TileBlock& block) {
  if (HasAmxBf16()) return AmxProduct1x4(block);
  Avx512Products(block, {{0, 1, 0, {0, 1}}, {2, 3, 0, {2, 3}}});
}

#else

void BeginTileProducts() { PF_CHECK(false); }
void EndTileProducts() {}
void TileProduct2x2(const TileBlock&) { PF_CHECK(false); }
void TileProduct4x1(const TileBlock&) { PF_CHECK(false); }
void TileProduct1x4(const TileBlock&) { PF_CHECK(false); }

#endif

}  // namespace pagefuse
