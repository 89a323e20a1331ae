// Rounding of float32 weights and activations to bfloat16, into the layouts of the bf16 kernels.
#pragma once

#include <cstdint>

#include "pagefuse/ops/kernels/linalg/matrix.h"

namespace pagefuse {

// Where the blocks of one row of blocks go: column block c starts at words + c * column_stride.
struct BlockRow {
  uint16_t* words;
  int64_t column_stride;
};

// Rounds rows [32 * block, 32 * block + 32) of weight [k, n] (not transposed) to one block for each
// 16 columns (PackedBf16's layout). Rows and columns past the matrix become zero.
void PackRows(const WeightView& weight, int64_t block, const BlockRow& out);

// Rounds columns [16 * block, 16 * block + 16) of a transposed weight [n, k] to a stream of blocks
// over k.
void PackColumns(const WeightView& weight, int64_t block, uint16_t* out);

// Rounds rows [first, first + rows) of x, rows <= 16, to A tiles (bf16_tiles.h): for each 32
// columns one of 16 rows of 32 words (rows past `rows` are left alone, columns past k are zero);
// tile b starts at out + 512 * b.
void PackTileRows(const RowsView& x, int64_t k, int64_t first, int64_t rows, uint16_t* out);

// Rounds one row to bfloat16 values kept as float32; out [k rounded up to 32], zero past k.
void RoundRow(const float* x, int64_t k, float* out);

}  // namespace pagefuse
