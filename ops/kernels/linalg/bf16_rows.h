// SPDX-License-Identifier: Apache-2.0
// Products of bfloat16 whose one operand is rows where they lie, by AVX512-BF16: only the other
// operand needs packing. Layouts of A and C tiles and exactness are those of bf16_tiles.h.
#pragma once

#include <cstdint>

#include "pagefuse/ops/kernels/linalg/bf16_tiles.h"
#include "pagefuse/ops/kernels/linalg/cpu_features.h"

namespace pagefuse {

// True where these products are the fastest: the unit is AVX512-BF16. AMX loads tiles.
inline bool HasBf16Rows() { return BestBf16Unit() == Bf16Unit::kAvx512; }

// Words of Q tiles, as many as those of B tiles: element (k, n) of 32 rows of 16 columns at word
// (k / 4) * 64 + n * 4 + k % 4. A column's four words, asked for as one, then meet two vectors of
// columns: half the loads that a B tile needs.
inline constexpr int64_t kQuad = 4;

// c = rows q, or c + rows q: 16 rows of words [0, 32 k_tiles) by the Q tiles of q, which follow
// each other over k, into a C tile. Two sums are made, each pair after pair of k: of the first two
// words of each four and of the others. Their sum is c, or is added to it. Needs HasBf16Rows().
struct RowsByQuads {
  const uint16_t* const* rows;
  const uint16_t* q;
  int64_t k_tiles;
  bool accumulate;
  float* c;
  ComingRows coming = {};  // with each tile of k a line
};
void MultiplyRowsByQuads(const RowsByQuads& in);

// c = a rows, or c + a rows: the A tiles of a, which follow each other over k, by 32 k_tiles rows
// of 32 words each, into two C tiles with the columns of two B tiles interleaved: of each eight
// words the first four belong to the first tile, the others to the second. Of a and c only the
// first `num_a_rows` rows count, rounded up to a multiple of 8. The order of sums is that of
// bf16_tiles.h. Needs HasBf16Rows().
struct TilesByRows {
  const uint16_t* a;
  const uint16_t* const* rows;
  int64_t column;  // where in the rows the words begin
  int64_t k_tiles;
  int64_t num_a_rows = kTileRows;
  bool accumulate;
  float* c[2];
};
void MultiplyTilesByRows(const TilesByRows& in);

}  // namespace pagefuse
