// SPDX-License-Identifier: Apache-2.0
// Products of a few bfloat16 tiles, by AMX or by AVX512-BF16: the inner loop of kernels that pack
// their operands themselves.
//
// A tile is 1024 bytes, aligned to 64:
//   A  16 rows of 32 bf16:    element (m, k) at word m * 32 + k
//   B  32 rows of 16 columns: element (k, n) at word (k / 2) * 32 + n * 2 + k % 2
//   C  16 rows of 16 floats
// Products are exact, sums are float32 rounded to nearest; subnormal numbers count as zero. In
// which order a sum is made depends on the unit (linear_bf16.h).
#pragma once

#include <cstdint>

namespace pagefuse {

inline constexpr int64_t kTileRows = 16;     // of A and C
inline constexpr int64_t kTileColumns = 16;  // of B and C
inline constexpr int64_t kTileDepth = 32;    // of k in a tile of A or B
inline constexpr int64_t kTileWords = 512;   // 16-bit words of a tile of A or B
inline constexpr int64_t kTileFloats = 256;  // floats of a tile of C

// Rows of memory that will be read soon: they are asked for, line after line, while a product runs,
// so that memory works while the processor does. Only a hint.
struct ComingRows {
  const uint8_t* const* rows = nullptr;
  int64_t count = 0;
  int64_t lines = 0;  // of 64 bytes, from where a row begins

  // Part i of `parts`.
  ComingRows Part(int64_t i, int64_t parts) const {
    return {rows + count * i / parts, count * (i + 1) / parts - count * i / parts, lines};
  }
  // Asks for line `i` of all rows.
  void Ask(int64_t i) const {
    constexpr int kSecondLevel = 2;  // the first is for the operands of products
    for (int64_t r = 0; i < lines && r < count; ++r) {
      __builtin_prefetch(rows[r] + i * 64, 0, kSecondLevel);
    }
  }
};

// Four sums over k. The tiles of an operand follow each other over k, 512 words apart. Operands
// that are missing at an edge are given twice, and their sum too: it is made as if given once.
struct TileBlock {
  const uint16_t* a[4] = {};
  const uint16_t* b[4] = {};
  float* c[4] = {};
  int64_t k_tiles = 0;
  bool accumulate = false;  // adds to c rather than replacing it
  ComingRows coming = {};   // with each tile of k a line
};

// All of these need HasBf16Tiles(). A thread calls BeginTileProducts before its first product and
// EndTileProducts after its last; nothing else may use tiles in between.
void BeginTileProducts();
void EndTileProducts();
// c[2 i + j] = a[i] b[j], i and j below 2.
void TileProduct2x2(const TileBlock& block);
// c[i] = a[i] b[0].
void TileProduct4x1(const TileBlock& block);
// c[j] = a[0] b[j].
void TileProduct1x4(const TileBlock& block);

}  // namespace pagefuse
