// SPDX-License-Identifier: Apache-2.0
// Weighted sums of values of a warp's rows: C of mma (fragments.h), as scores are. Device code: for .cu files.
#pragma once

#include "pagefuse/ops/kernels/cuda/paged_prefill_softmax.h"
#include "pagefuse/ops/kernels/cuda/sparse_mla_ptx.h"

namespace pagefuse::cuda {

// Weights of 16 keys as A of the outputs' products; `parts` of them.
template <class Traits, int parts>
struct PrefillWeights {
  uint32_t at[parts][4];

  __device__ static PrefillWeights Of(const float (&first)[4], const float (&second)[4]) {
    PrefillWeights weights;
    const float* pairs[4] = {first, first + 2, second, second + 2};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float a = pairs[i][0], b = pairs[i][1];
      weights.at[0][i] = PackPair<Traits>(a, b);
      if constexpr (parts > 1) {
        TakePair<Traits>(weights.at[0][i], a, b);
        weights.at[1][i] = PackPair<Traits>(a, b);
      }
    }
    return weights;
  }
};

template <class Traits>
struct PrefillOutputs {
  static constexpr int kBlocks = Traits::kBlocks;
  static constexpr int kColumns = Traits::kHeadSize / 8;
  static constexpr int kStride = Traits::kHeadSize + 8;  // of rows that leave registers
  float at[kBlocks][kColumns][4];

  __device__ void Clear() {
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
#pragma unroll
      for (auto& column : at[b]) column[0] = column[1] = column[2] = column[3] = 0;
    }
  }
  __device__ void Scale(const float (&factors)[kBlocks][2]) {
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
#pragma unroll
      for (auto& column : at[b]) {
        column[0] *= factors[b][0], column[1] *= factors[b][0];
        column[2] *= factors[b][1], column[3] *= factors[b][1];
      }
    }
  }
  // Adds weights times values of a tile.
  __device__ void Add(const PrefillScores<Traits>& weights, const uint8_t* values) {
    if constexpr (Traits::kExact) {
      AddExactly(weights, values);
    } else {
      AddByKeys(weights, values);
    }
  }
  // Block b to rows of kStride floats.
  __device__ void Store(int b, float* to) const {
    const int g = LaneId() / 4, t = LaneId() % 4;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      float* pair = to + g * kStride + 8 * c + 2 * t;
      *reinterpret_cast<float2*>(pair) = make_float2(at[b][c][0], at[b][c][1]);
      *reinterpret_cast<float2*>(pair + 8 * kStride) = make_float2(at[b][c][2], at[b][c][3]);
    }
  }

 private:
  __device__ void AddByKeys(const PrefillScores<Traits>& weights, const uint8_t* values) {
    const int place = PlaceInA<Traits>();
#pragma unroll
    for (int k = 0; k < Traits::kKeys / 16; ++k) {
      PrefillWeights<Traits, 1> w[kBlocks];
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) {
        w[b] = PrefillWeights<Traits, 1>::Of(weights.at[b][2 * k], weights.at[b][2 * k + 1]);
      }
#pragma unroll
      for (int c = 0; c < kColumns; c += 2) {
        uint32_t v[4];
        ptx::LoadMatricesTransposed(values + k * 16 * Traits::kRowBytes + (place ^ c * 16), v);
#pragma unroll
        for (int b = 0; b < kBlocks; ++b) {
          Multiply<Traits>(at[b][c], w[b].at[0], v[0], v[1]);
          Multiply<Traits>(at[b][c + 1], w[b].at[0], v[2], v[3]);
        }
      }
    }
  }
  // The products of a tile are summed apart: these sums are cut off, not rounded.
  __device__ void AddExactly(const PrefillScores<Traits>& weights, const uint8_t* values) {
    constexpr int kSteps = Traits::kKeys / 16;
    const int place = PlaceInA<Traits>();
    PrefillWeights<Traits, 2> w[kSteps];
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      w[k] = PrefillWeights<Traits, 2>::Of(weights.at[0][2 * k], weights.at[0][2 * k + 1]);
    }
#pragma unroll
    for (int c = 0; c < kColumns; c += 2) {
      float sums[2][4] = {};
#pragma unroll
      for (int k = 0; k < kSteps; ++k) {
        uint32_t v[4];
        ptx::LoadMatricesTransposed(values + k * 16 * Traits::kRowBytes + (place ^ c * 16), v);
#pragma unroll
        for (int part = 0; part < 2; ++part) {
          Multiply<Traits>(sums[0], w[k].at[part], v[0], v[1]);
          Multiply<Traits>(sums[1], w[k].at[part], v[2], v[3]);
        }
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) at[0][c][i] += sums[0][i], at[0][c + 1][i] += sums[1][i];
    }
  }
};

}  // namespace pagefuse::cuda
