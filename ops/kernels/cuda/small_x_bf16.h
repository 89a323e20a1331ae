// SPDX-License-Identifier: Apache-2.0
// x of products of up to 64 rows (small_bf16.h): pieces of its rows, rounded to bfloat16 into a block's shared memory. Device
// code alone.
#pragma once

#include "pagefuse/ops/kernels/cuda/small_plan.h"

namespace pagefuse::cuda {

// A piece of a row of x as it is in memory, and as bfloat16.
template <typename X>
struct XPiece {
  static constexpr int kWords = sizeof(X) / sizeof(Bfloat);
  uint4 words[kWords] = {};

  __device__ void Load(const void* x, int64_t piece) {
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      words[i] = static_cast<const uint4*>(x)[piece * kWords + i];
    }
  }
  __device__ uint4 Rounded() const {
    if constexpr (kWords == 1) {
      return words[0];
    } else {
      const auto pair = [](uint32_t a, uint32_t b) {
        const __nv_bfloat162 both = __floats2bfloat162_rn(__uint_as_float(a), __uint_as_float(b));
        return *reinterpret_cast<const uint32_t*>(&both);
      };
      const uint4 low = words[0], high = words[kWords - 1];
      return {pair(low.x, low.y), pair(low.z, low.w), pair(high.x, high.y), pair(high.z, high.w)};
    }
  }
};

// A piece of a row of x, if it is there.
struct XPlace {
  bool there;
  int row, piece;
};

// Pieces of x that a thread has on their way together, of which places(i) tells.
template <typename X, class Sums, int kBatch, class Place, class Places>
__device__ void RoundBatch(const SmallCall& call, const Place& place, const Places& places,
                           uint4* to) {
  constexpr SmallShape kShape = Sums::kShape;
  XPiece<X> batch[kBatch];
#pragma unroll
  for (int i = 0; i < kBatch; ++i) {
    const XPlace at = places(i);
    if (!at.there || at.piece >= place.part_count) continue;
    const int64_t row = SmallStack::Product() * call.m + at.row;
    batch[i].Load(call.x, row * call.plan.row_pieces + place.part_begin + at.piece);
  }
#pragma unroll
  for (int i = 0; i < kBatch; ++i) {
    const XPlace at = places(i);
    if (at.there) to[at.row * call.plan.x_stride(kShape) + at.piece] = batch[i].Rounded();
  }
}

// The part's columns of all rows of x, with zeros behind them. Threads take pieces of few rows one behind the other; of
// more rows each warp takes some.
template <typename X, class Sums, class Place>
__device__ void RoundRows(const SmallCall& call, const Place& place, uint4* to) {
  constexpr SmallShape kShape = Sums::kShape;
  const int padded = call.plan.x_pieces(kShape), own = static_cast<int>(threadIdx.x);
  if constexpr (kShape.rows <= 16) {
    constexpr int kBatch = 4;
    const int total = call.m * padded;
#pragma unroll 1
    for (int first = own; first < total; first += kBatch * kShape.threads()) {
      const auto places = [&](int i) {
        const int at = first + i * kShape.threads(), row = kShape.rows == 1 ? 0 : at / padded;
        return XPlace{at < total, row, at - row * padded};
      };
      RoundBatch<X, Sums, kBatch>(call, place, places, to);
    }
  } else {
    constexpr int kBatch = kShape.rows / kShape.warps;
#pragma unroll 1
    for (int piece = own % 32; piece < padded; piece += 32) {
      const auto places = [&](int i) {
        const int row = own / 32 + i * kShape.warps;
        return XPlace{row < call.m, row, piece};
      };
      RoundBatch<X, Sums, kBatch>(call, place, places, to);
    }
  }
}

}  // namespace pagefuse::cuda
