// SPDX-License-Identifier: Apache-2.0
// The vector loops of nbits_int8.cc.
#pragma once

#include <cstdint>
#include <vector>

#include "pagefuse/ops/kernels/linalg/nbits.h"
#include "pagefuse/ops/kernels/linalg/nbits_int8.h"

namespace pagefuse {

// Rows of x as integers, in chunks of 16 blocks along k, so that what tiles read lies in one piece:
// block b of row r is the At(r, b)-th. What is past k is 0. The integers of a block
//   of 8-bit weights  lie in order
//   of 4-bit weights  lie as the codes' halves of bytes do, in runs of four blocks, 128 bytes:
//                     [0, 64) the even elements of each block, [64, 128) the odd ones
struct Int8Rows {
  static constexpr int64_t kChunk = 16;

  int64_t m = 0;
  int64_t blocks = 0;            // a multiple of kChunk
  int8_t* codes = nullptr;       // 32 a block
  float* units = nullptr;        // one a block
  float* centre_sums = nullptr;  // the sum of the block's integers times the centre of codes
  float* unit_sums = nullptr;    // the unit times the sum

  int64_t At(int64_t row, int64_t block) const {
    return (block / kChunk * m + row) * kChunk + block % kChunk;
  }
};

// A part of a product: rows of x and rows of W.
struct Int8Part {
  int64_t row_begin = 0, row_end = 0;
  int64_t n_begin = 0, n_end = 0;

  int64_t rows() const { return row_end - row_begin; }
  int64_t columns() const { return n_end - n_begin; }
};

// Rows of W laid out for many rows of x, for a chunk along k:
//   words[(b * 8 + q) * kColumns + c]  four codes of block b, row c of W: of x's integers, too, the
//                                      q-th four of that block
//   scales[b * kColumns + c], zeros[b * kColumns + c] (scale times what the zero point is off the
//                                                      centre of codes)
struct Int8Tile {
  static constexpr int64_t kColumns = 64;
  static constexpr int64_t kBlocks = Int8Rows::kChunk;

  std::vector<uint32_t> words = std::vector<uint32_t>(kBlocks * 8 * kColumns);
  std::vector<float> scales = std::vector<float>(kBlocks * kColumns);
  std::vector<float> zeros = std::vector<float>(kBlocks * kColumns);
};

// Rounds row `row` of the m rows, x [k].
void RoundToInt8(const float* x, int64_t k, int bits, int64_t row, const Int8Rows& to);

// y[r, c] for the part's rows and columns, y at the part's corner. `memory` is for it.
void StreamInt8(const Int8Rows& x, const NBitsWeight& w, const Int8Part& part,
                std::vector<float>& memory, const OutputView& y);

// The same by way of tiles; of one tile's columns at most.
void MultiplyInt8Tile(const Int8Rows& x, const NBitsWeight& w, const Int8Part& part, Int8Tile& tile,
                      const OutputView& y);

}  // namespace pagefuse
