// SPDX-License-Identifier: Apache-2.0
// The softmax of a tile's scores, and the sums of values that its weights give. Device code: for .cu files.
#pragma once

#include "pagefuse/ops/kernels/cuda/sparse_mla_results.h"
#include "pagefuse/ops/kernels/cuda/sparse_mla_tile_scores.h"

namespace pagefuse::cuda::latent {

// A warp has some heads, a lane a row of the tile. Weights are exp2(score - max), in kParts parts as A of the next product.
template <class Work, int kParts>
struct TileSoftmax {
  static constexpr int kHeads = Work::kHeads, kOwn = kHeads / Work::kWarps;
  float max[kOwn], sum[kOwn];  // sums are those of the lane's rows

  __device__ void Clear() {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) max[i] = -INFINITY, sum[i] = 0;
  }
  // There are rows.
  __device__ void Begin() {
#pragma unroll
    for (float& m : max) m = kLeastScore;
  }
  __device__ static int HeadOf(int i) { return WarpId() * kOwn + i; }

  // weights[part][head][row]; keeps[head]: what was summed before is multiplied by it.
  __device__ void Weigh(const float* scores, float factor, bool present, uint8_t* weights,
                        float* keeps) {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int head = HeadOf(i);
      float score = 0;
#pragma unroll
      for (int quarter = 0; quarter < kQuarters; ++quarter) {
        score += scores[(quarter * kHeads + head) * kScoreStride + LaneId()];
      }
      score = present ? score * factor : -INFINITY;
      const float old = max[i];
      max[i] = fmaxf(old, MaxOfLanes(score));
      const float weight = exp2f(score - max[i]), keep = exp2f(old - max[i]);
      sum[i] = sum[i] * keep + weight;
      uint32_t parts[kParts];
      SplitPair(weight, 0, parts);
#pragma unroll
      for (int p = 0; p < kParts; ++p) {
        uint8_t* row = weights + (p * kHeads + head) * kWeightStride;
        reinterpret_cast<uint16_t*>(row)[LaneId()] = static_cast<uint16_t>(parts[p]);
      }
      if (LaneId() == 0) keeps[head] = keep;
    }
  }
};

// The warp's channels of the weighted sums of values.
template <class Work, int kParts>
struct TileValues {
  static constexpr int kTiles = Work::kValueHeads;
  static constexpr int kColumns = kWarpChannels / 8;  // tiles of eight channels
  float sums[kTiles][kColumns][4];

  __device__ void Clear() {
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[m][n][i] = 0;
      }
    }
  }
  __device__ void Rescale(const float* keeps) {
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
      const float* own = keeps + Work::ValueHead() + m * kLatentTileHeads + LaneId() / 4;
      const float low = own[0], high = own[8];
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
        sums[m][n][0] *= low, sums[m][n][1] *= low;
        sums[m][n][2] *= high, sums[m][n][3] *= high;
      }
    }
  }
  template <class Tile>
  __device__ void Add(const uint8_t* weights, const Tile& tile) {
    const int lane = LaneId();
    const uint8_t* a_row =
        weights + (Work::ValueHead() + lane % 16) * kWeightStride + lane / 16 * 16;
    const int channel = 2 * (Work::ValueChannel() + lane / 16 * 8);  // in bytes
#pragma unroll
    for (int k = 0; k < kLatentTileRows / 16; ++k) {
      const uint8_t* b_row = tile.Row(16 * k + lane % 16) + channel;
      uint32_t a[kParts][kTiles][4];
#pragma unroll
      for (int p = 0; p < kParts; ++p) {
#pragma unroll
        for (int m = 0; m < kTiles; ++m) {
          const int head = p * Work::kHeads + m * kLatentTileHeads;
          ptx::LoadMatrices(a_row + head * kWeightStride + k * 32, a[p][m]);
        }
      }
#pragma unroll
      for (int n = 0; n < kColumns; n += 2) {
        uint32_t b[4];
        ptx::LoadMatricesTransposed(b_row + n * 16, b);
#pragma unroll
        for (int p = kParts - 1; p >= 0; --p) {
#pragma unroll
          for (int m = 0; m < kTiles; ++m) {
            ptx::MmaBf16(sums[m][n], a[p][m], b[0], b[1]);
            ptx::MmaBf16(sums[m][n + 1], a[p][m], b[2], b[3]);
          }
        }
      }
    }
  }
  // To to[head][channel], rows of `stride` floats.
  __device__ void Store(int stride, float* to) const {
    float* own = to + (Work::ValueHead() + LaneId() / 4) * stride + Work::ValueChannel() +
                 2 * (LaneId() % 4);
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
        float* low = own + m * kLatentTileHeads * stride + 8 * n;
        *reinterpret_cast<float2*>(low) = make_float2(sums[m][n][0], sums[m][n][1]);
        *reinterpret_cast<float2*>(low + 8 * stride) = make_float2(sums[m][n][2], sums[m][n][3]);
      }
    }
  }
};

}  // namespace pagefuse::cuda::latent
