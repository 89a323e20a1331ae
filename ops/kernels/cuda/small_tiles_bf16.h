// SPDX-License-Identifier: Apache-2.0
// Products of 2 to 64 rows with bfloat16 weights in rows: the sums of small_bf16.h by tensor cores. Device code alone.
#pragma once

#include <type_traits>

#include "pagefuse/ops/kernels/cuda/small_bf16.h"

namespace pagefuse::cuda {

// Products with up to kRows rows of x by tensor cores, with kAcross times 16 rows of W on the left, for which x is read
// once. A lane's 8 neighbours are the operands of two steps of theirs, whose order along K is free as long as both sides
// have the same.
template <int kRows, int kAcross = 1>
class TileSums {
 public:
  static constexpr SmallShape kShape = {.rows = kRows,
                                        .columns = 16 * kAcross,
                                        .run = 8 / kAcross,
                                        .warps = 8,
                                        .stages = 4,
                                        .residents = 1,
                                        .direct = true};
  static constexpr int kTiles = kRows / 8;

  // Halves of two rows beside each other are in different banks.
  __device__ static int PlaceOf(int row, int piece) {
    return row * kShape.run + (piece ^ row % 2 * (kShape.run / 2));
  }

  // x: the lane's rows, from its own piece on.
  __device__ void Add(const uint4* stage, const uint4* const (&x)[kTiles], int at) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int piece = 0; piece < kShape.run; piece += 4) {
      uint32_t first[kAcross][4], second[kAcross][4];
#pragma unroll
      for (int j = 0; j < kAcross; ++j) {
        const uint4* w = stage + PlaceOf(16 * j + lane / 4, piece + lane % 4);
        const uint4 low = w[0], high = w[8 * kShape.run];
        SetAll(first[j], low.x, high.x, low.y, high.y);
        SetAll(second[j], low.z, high.z, low.w, high.w);
      }
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        const uint4 own = x[i][at + piece];
#pragma unroll
        for (int j = 0; j < kAcross; ++j) {
          ptx::MmaBf16(sums_[i][j], first[j], own.x, own.y);
          ptx::MmaBf16(sums_[i][j], second[j], own.z, own.w);
        }
      }
    }
  }
  // Row of x and first piece that are the lane's.
  __device__ static int RowOf(int lane) { return lane / 4; }
  __device__ static int PieceOf(int lane) { return lane % 4; }

  // The lane's: f(row, column, sum).
  template <class F>
  __device__ void ForEach(const F& f) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int column = lane / 4, row = lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
      for (int k = 0; k < 4 * kAcross; ++k) {
        f(8 * i + row + k % 2, column + k / 2 * 8, sums_[i][k / 4][k % 4]);
      }
    }
  }
  // [kRows, columns]
  __device__ void Store(float* to) const {
    ForEach([&](int row, int column, float sum) { to[row * kShape.columns + column] = sum; });
  }

 private:
  __device__ static void SetAll(uint32_t (&to)[4], uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    to[0] = a, to[1] = b, to[2] = c, to[3] = d;
  }

  float sums_[kTiles][kAcross][4] = {};
};

// The sums of so many rows: f(std::type_identity<Sums>()).
template <class F>
auto WithTileSums(int64_t rows, const F& f) {
  if (rows <= 8) return f(std::type_identity<TileSums<8>>());
  if (rows <= 16) return f(std::type_identity<TileSums<16>>());
  if (rows <= 32) return f(std::type_identity<TileSums<32>>());
  return f(std::type_identity<TileSums<64, 2>>());
}

template <typename X, bool kGated>
Error LaunchSmallTiles(const ProductParams& params, Stream stream) {
  return WithTileSums(params.m, [&](auto sums) {
    return LaunchSmall<X, kGated, typename decltype(sums)::type>(params, stream);
  });
}

}  // namespace pagefuse::cuda
