// SPDX-License-Identifier: Apache-2.0
// Outputs of a warp of the decode over TurboQuant slots: weights times the codes of values. Device code: for .cu files.
#pragma once

#include "pagefuse/ops/kernels/cuda/paged_decode_slot_places.h"

namespace pagefuse::cuda::slots {

// Of the warp's heads so far, without what values' zeros add.
struct Outputs {
  float tiles[8][4];

  __device__ void Clear() {
#pragma unroll
    for (int i = 0; i < 8; ++i) tiles[i][0] = tiles[i][1] = tiles[i][2] = tiles[i][3] = 0;
  }
  __device__ void Scale(const float (&factors)[2]) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      tiles[i][0] *= factors[0], tiles[i][1] *= factors[1];
      tiles[i][2] *= factors[0], tiles[i][3] *= factors[1];
    }
  }
  template <class Format>
  __device__ void AddPage(const LanePlaces& at, uint32_t page, const uint32_t (&weights)[2]) {
    if constexpr (Format::kValueBits == 4) {
      AddNibbles(at, page, weights);
    } else {
      AddTriplets(at, page, weights);
    }
  }
  // zeros: of heads 2t and 2t + 1. `odd`: values begin at 2 mod 4.
  template <class Format>
  __device__ void Store(float* values, int group, bool odd, const float (&zeros)[2]) const {
    const int g = LaneId() / 4, t = LaneId() % 4;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      if (2 * t + j >= group) continue;
      float* row = values + (2 * t + j) * kSize;
      if constexpr (Format::kValueBits == 4) {
        StoreNibbles(row, j, g, NibbleRow{odd}, zeros[j]);
      } else {
        StoreTriplets(row, j, g, zeros[j]);
      }
    }
  }

 private:
  __device__ void AddNibbles(const LanePlaces& at, uint32_t page, const uint32_t (&weights)[2]) {
    uint32_t words[4][2];  // of keys 2t, 2t + 1, 2t + 8, 2t + 9: words g and g + 8
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const uint32_t token = page + (k % 2 + k / 2 * 8) * at.token;
      words[k][0] = ptx::LoadShared<uint32_t>(token + at.values);
      words[k][1] =
          BytePermute(ptx::LoadShared<uint32_t>(token + at.last_value),
                      ptx::LoadShared<uint32_t>(token + at.values + 32), at.last_value_selector);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {  // of a word
      const uint32_t selector = half == 0 ? 0x5410 : 0x7632;
      uint32_t pairs[2][2];  // [word][keys 2t, 2t + 1, or 2t + 8, 2t + 9]
#pragma unroll
      for (int word = 0; word < 2; ++word) {
        pairs[word][0] = BytePermute(words[0][word], words[1][word], selector);
        pairs[word][1] = BytePermute(words[2][word], words[3][word], selector);
      }
#pragma unroll
      for (int n = 0; n < 4; ++n) {  // nibbles
        const uint32_t mask = n % 2 == 0 ? kLowNibbles : kHighNibbles;
        const int shift = n / 2 * 8;
        const uint32_t a[4] = {pairs[0][0] >> shift & mask, pairs[1][0] >> shift & mask,
                               pairs[0][1] >> shift & mask, pairs[1][1] >> shift & mask};
        ptx::MultiplyHalves(tiles[half * 4 + n], a, weights[0], weights[1]);
      }
    }
  }
  __device__ void AddTriplets(const LanePlaces& at, uint32_t page, const uint32_t (&weights)[2]) {
    uint32_t low[4], high[4];  // of keys 2t, 2t + 1, 2t + 8, 2t + 9: units 0 and 1, unit 2
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const uint32_t row = page + (k % 2 + k / 2 * 8) * at.token + at.values;
      const auto first = ptx::LoadShared<uint32_t>(row),
                 second = ptx::LoadShared<uint32_t>(row + 4);
      low[k] = BytePermute(first, second, at.last_value_selector);
      high[k] = BytePermute(second, second, at.last_value_selector);
    }
    uint32_t units[2][3];  // of keys 2t and 2t + 1, of 2t + 8 and 2t + 9
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      units[k][0] = BytePermute(low[2 * k], low[2 * k + 1], 0x5410);
      units[k][1] = BytePermute(low[2 * k], low[2 * k + 1], 0x7632);
      units[k][2] = BytePermute(high[2 * k], high[2 * k + 1], 0x5410);
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const uint32_t a[4] = {TripletOf(units[0], 2 * i), TripletOf(units[0], 2 * i + 1),
                             TripletOf(units[1], 2 * i), TripletOf(units[1], 2 * i + 1)};
      ptx::MultiplyHalves(tiles[i], a, weights[0], weights[1]);
    }
  }
  __device__ void StoreNibbles(float* row, int j, int g, NibbleRow order, float zero) const {
#pragma unroll
    for (int upper = 0; upper < 2; ++upper) {
#pragma unroll
      for (int byte = 0; byte < 4; ++byte) {
        const float2 pair = {tiles[2 * byte][2 * upper + j] * kLowNibbleUnit + zero,
                             tiles[2 * byte + 1][2 * upper + j] * kHighNibbleUnit + zero};
        *reinterpret_cast<float2*>(row + order.Channel(g + 8 * upper, byte)) = pair;
      }
    }
  }
  __device__ void StoreTriplets(float* row, int j, int g, float zero) const {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float2 pair = {tiles[i][j] * TripletUnit(2 * i) + zero,
                           tiles[i][2 + j] * TripletUnit(2 * i + 1) + zero};
      *reinterpret_cast<float2*>(row + TripletChannel(g, i, 0)) = pair;
    }
  }
};

}  // namespace pagefuse::cuda::slots
