// SPDX-License-Identifier: Apache-2.0
// Streaming kernels of LinearNBits.
#pragma once

#include <cstdint>

#include "pagefuse/ops/kernels/linalg/nbits.h"

namespace pagefuse {

// Rows of x laid out for the kernels: block b of a row at b * w.block, zero-padded; of 4-bit
// weights the even elements of a block, then the odd ones.
struct NBitsRows {
  const float* data = nullptr;  // [m, blocks * block]
  const float* sums = nullptr;  // [m, blocks]: the sum of each block
  int64_t m = 0;
};

// Rows of x up to which streaming is faster than decoding W to floats for oneDNN.
int64_t NBitsStreamedRows();

// True if the kernels take codes and blocks of this size.
bool NBitsStreams(const NBitsWeight& w);

// Lays out row `row` of x.
void LayOutNBitsRow(const NBitsWeight& w, const float* x, float* row, float* sums);

// y[r, c] for all rows of x and c in [n_begin, n_end). `weights` is memory for blocks() floats.
void StreamNBits(const NBitsRows& x, const NBitsWeight& w, int64_t n_begin, int64_t n_end,
                 float* weights, const OutputView& y);

}  // namespace pagefuse
