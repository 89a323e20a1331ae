// SPDX-License-Identifier: Apache-2.0
// Rounding of float32 weights and activations to bfloat16, into the layouts of the bf16 kernels.
#pragma once

#include <cstdint>

#include "pagefuse/ops/kernels/linalg/matrix.h"

namespace pagefuse {

// Rounds rows [first, first + rows) of weight [k, n] (not transposed) and puts them where they are
// columns of `out` [n, k].
void RoundTransposed(const WeightView& weight, int64_t first, int64_t rows, uint16_t* out);

// Packs `columns`, at most 16, rows of k words to a column block of PackedBf16: a stream of blocks
// over k, zeros past both sizes.
void PackColumns(const uint16_t* rows, int64_t k, int64_t columns, uint16_t* out);

// Rounds rows [first, first + rows) of x, rows <= 16, to A tiles (bf16_tiles.h): for each 32
// columns one of 16 rows of 32 words (rows past `rows` are left alone, columns past k are zero);
// tile b starts at out + 512 * b.
void PackTileRows(const RowsView& x, int64_t k, int64_t first, int64_t rows, uint16_t* out);

// Rounds one row to bfloat16 values kept as float32; out [k rounded up to 32], zero past k.
void RoundRow(const float* x, int64_t k, float* out);

}  // namespace pagefuse
