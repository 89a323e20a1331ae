// SPDX-License-Identifier: Apache-2.0
// The vector loops of nbits_int8.cc.
#pragma once

#include <cstdint>

#include "pagefuse/ops/kernels/linalg/nbits_int8.h"
#include "pagefuse/ops/kernels/linalg/nbits_lanes.h"

namespace pagefuse {

// Rows of x as integers, in chunks of 16 blocks along k, so that what many rows read of them lies in
// one piece: block b of row r is the At(r, b)-th. What is past k is 0. The integers of a block
//   of 8-bit weights  lie in order
//   of 4-bit weights  lie as the codes' halves of bytes do: the 16 even ones, then the odd ones
struct Int8Rows {
  static constexpr int64_t kChunk = 16;

  int64_t m = 0;
  int64_t blocks = 0;          // a multiple of kChunk
  int8_t* codes = nullptr;     // 32 a block
  float* units = nullptr;      // one a block
  float* unit_sums = nullptr;  // the unit times the sum of the block's integers
  int32_t* starts = nullptr;   // minus that sum times the centre of codes

  int64_t At(int64_t row, int64_t block) const {
    return (block / kChunk * m + row) * kChunk + block % kChunk;
  }
};

// A part of a product: rows of x and groups of 16 rows of W.
struct Int8Part {
  int64_t row_begin = 0, row_end = 0;
  int64_t group_begin = 0, group_end = 0;

  int64_t rows() const { return row_end - row_begin; }
};

// Rounds row `row` of the m rows, x [k].
void RoundToInt8(const float* x, int64_t k, int bits, int64_t row, const Int8Rows& to);

// y[r, c] for the part's rows and columns, y at the part's corner.
void MultiplyInt8(const Int8Rows& x, const NBitsLanes& w, const Int8Part& part,
                  const OutputView& y);

}  // namespace pagefuse
