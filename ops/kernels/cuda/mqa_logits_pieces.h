// SPDX-License-Identifier: Apache-2.0
// Pieces of rows of queries and keys of index scores, of any type, as floats in shared memory. Device code alone.
#pragma once

#include <cstdint>

#include "pagefuse/ops/kernels/cuda/convert.h"
#include "pagefuse/ops/kernels/cuda/element.h"
#include "pagefuse/ops/kernels/cuda/row_vectors.h"
#include "pagefuse/ops/kernels/cuda/warp_row.h"
#include "pagefuse/ops/kernels/formats/group_format.h"

namespace pagefuse::cuda::mqa_pieces {

inline constexpr int kThreads = 256, kWarps = kThreads / kWarp;
inline constexpr int kDepth = 128;  // elements of a piece, four a lane
inline constexpr int kGroup = 32;   // elements of a four-bit key with one scale

struct Row {
  const uint8_t* data = nullptr;  // null: it is not there
  const uint8_t* scale = nullptr;
};

// --- elements of a row as floats: one, or four whose number is a multiple of four ---
// Four are loaded as words, and made floats when all have come.

template <typename T>
struct Numbers {
  using Words = Vector<uint32_t, sizeof(T)>;
  static constexpr int kFourBytes = sizeof(Words);
  __device__ static float One(const Row& row, int d) {
    return ToFloat(reinterpret_cast<const T*>(row.data)[d]);
  }
  __device__ static Words Load(const Row& row, int d) {
    return reinterpret_cast<const Words*>(row.data)[d / 4];
  }
  __device__ static Vector<float, 4> Floats(const Words& words) {
    return LoadFloats<T, 4>(&words, 0);
  }
};

struct Codes {
  using Words = uint32_t;
  static constexpr int kFourBytes = sizeof(Words);
  __device__ static float One(const Row& row, int d) {
    return DecodeFloat<E4M3FNFormat>(row.data[d]);
  }
  __device__ static Words Load(const Row& row, int d) {
    return reinterpret_cast<const Words*>(row.data)[d / 4];
  }
  __device__ static Vector<float, 4> Floats(Words codes) {
    Vector<float, 4> floats;
    FloatsOfE4m3(codes, floats.at);
    return floats;
  }
};

struct FourBitCodes {
  struct Words {
    uint16_t codes;
    uint8_t scale;
  };
  static constexpr int kFourBytes = 2;
  __device__ static float Decode(int codes, int i, uint8_t scale) {
    return DecodeFloat<E2M1Format>(static_cast<uint8_t>(codes >> (4 * i) & 15)) *
           DecodeUe8m0(scale);
  }
  __device__ static float One(const Row& row, int d) {
    return Decode(row.data[d / 2], d % 2, row.scale[d / kGroup]);
  }
  __device__ static Words Load(const Row& row, int d) {
    return {reinterpret_cast<const uint16_t*>(row.data)[d / 4], row.scale[d / kGroup]};
  }
  __device__ static Vector<float, 4> Floats(const Words& words) {
    Vector<float, 4> floats;
#pragma unroll
    for (int i = 0; i < 4; ++i) floats.at[i] = Decode(words.codes, i, words.scale);
    return floats;
  }
};

// Elements [d0, d0 + kDepth) of rows of `size` elements, row_at(i) with i < kRows, a warp a row: 0 behind the last, and of
// rows that are not there. `in_fours`: four of them are aligned.
template <class Elements, int kRows, int kStride, class RowAt>
__device__ void LoadRows(const RowAt& row_at, int d0, int size, bool in_fours,
                         float (&to)[kRows][kStride]) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = LaneId();
  if (in_fours) {
    constexpr int kTurns = kRows / kWarps;
    const int d = d0 + 4 * lane;
    typename Elements::Words words[kTurns] = {};  // all are on their way at once
#pragma unroll
    for (int i = 0; i < kTurns; ++i) {
      const Row row = row_at(warp + i * kWarps);
      if (row.data != nullptr && d < size) words[i] = Elements::Load(row, d);
    }
#pragma unroll
    for (int i = 0; i < kTurns; ++i) {
      *reinterpret_cast<Vector<float, 4>*>(&to[warp + i * kWarps][4 * lane]) =
          Elements::Floats(words[i]);
    }
    return;
  }
  for (int i = warp; i < kRows; i += kWarps) {
    const Row row = row_at(i);
#pragma unroll 1
    for (int d = lane; d < kDepth; d += kWarp) {
      to[i][d] = row.data != nullptr && d0 + d < size ? Elements::One(row, d0 + d) : 0.0f;
    }
  }
}

}  // namespace pagefuse::cuda::mqa_pieces
