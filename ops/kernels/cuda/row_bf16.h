// SPDX-License-Identifier: Apache-2.0
// Sums of products of one row with bfloat16 weights in rows. Device code alone.
//
// A column of y is one row of W, read in runs of 512 bytes: the short pieces of many rows that tensor cores want are for
// more rows of x.
#pragma once

#include "pagefuse/ops/kernels/cuda/small_bf16.h"

namespace pagefuse::cuda {

__device__ inline float LowFloat(uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ inline float HighFloat(uint32_t pair) { return __uint_as_float(pair & 0xFFFF0000u); }

// Of a piece. Two sums, so that one step need not wait for the one before.
__device__ inline void AddProducts(uint4 w, uint4 x, float (&sums)[2]) {
  const uint32_t w_pairs[4] = {w.x, w.y, w.z, w.w}, x_pairs[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    sums[0] = fmaf(LowFloat(w_pairs[i]), LowFloat(x_pairs[i]), sums[0]);
    sums[1] = fmaf(HighFloat(w_pairs[i]), HighFloat(x_pairs[i]), sums[1]);
  }
}

// The sum of all lanes of the warp.
__device__ inline float SumOfWarp(const float (&sums)[2]) {
  float sum = sums[0] + sums[1];
#pragma unroll
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, step);
  return sum;
}

// The sums of one column, for blocks that stay.
class RowSums {
 public:
  static constexpr SmallShape kShape = {};
  static constexpr int kTiles = 1;

  __device__ static int PlaceOf(int, int piece) { return piece; }
  __device__ static int RowOf(int) { return 0; }
  __device__ static int PieceOf(int lane) { return lane; }

  __device__ void Add(const uint4* stage, const uint4* const (&x)[1], int at) {
    AddProducts(stage[threadIdx.x % 32], x[0][at], sums_);
  }
  __device__ void Store(float* to) const {
    const float sum = SumOfWarp(sums_);
    if (threadIdx.x % 32 == 0) *to = sum;
  }

 private:
  float sums_[2] = {};
};

}  // namespace pagefuse::cuda
