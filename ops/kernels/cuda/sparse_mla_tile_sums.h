// SPDX-License-Identifier: Apache-2.0
// Products of a tile of 32 cache rows with queries and weights of up to 32 heads, and the softmax between them. Device code: for .cu files.
//
// With g = lane / 4 and t = lane % 4, as ptx.h draws the fragments of mma:
//   scores  S [heads, rows] = Q K^T   of a quarter of the elements and half of the rows by each warp; Q stays in registers
//   values  O [heads, 512] += P V     of 64 channels by each warp
#pragma once

#include "pagefuse/ops/kernels/cuda/sparse_mla_ptx.h"
#include "pagefuse/ops/kernels/cuda/sparse_mla_results.h"
#include "pagefuse/ops/kernels/cuda/sparse_mla_tile_rows.h"

namespace pagefuse::cuda::latent {

inline constexpr int kQuarters = 4;
inline constexpr int kScoreStride = 40;       // floats: neighbours g of C lie in different banks
inline constexpr int kWeightStride = 2 * 40;  // bytes, likewise for matrices of A
inline constexpr int kWarpChannels = kLatentValues / kTileWarps;

// Numbers that are fed in several bfloat16 parts: the first kParts whose sum is nearest.
template <int kParts>
__device__ void SplitPair(float low, float high, uint32_t (&parts)[kParts]) {
#pragma unroll
  for (int p = 0; p < kParts; ++p) {
    parts[p] = PackBfloats(low, high);
    low -= __uint_as_float(parts[p] << 16);
    high -= __uint_as_float(parts[p] & 0xFFFF0000u);
  }
}

// Elements d and d + 1 of the query of a head, in parts.
template <int kParts>
__device__ void LoadQueryPair(const SparseMla& call, int64_t row, int d,
                              uint32_t (&parts)[kParts]) {
  const int64_t at = row * call.head_size + d;
  if constexpr (kParts == 1) {
    parts[0] = *reinterpret_cast<const uint32_t*>(static_cast<const uint16_t*>(call.q) + at);
  } else if (call.query_type == DataType::kFloat16) {
    const auto pair = *reinterpret_cast<const uint32_t*>(static_cast<const uint16_t*>(call.q) + at);
    SplitPair(HalfToFloat(static_cast<uint16_t>(pair)),
              HalfToFloat(static_cast<uint16_t>(pair >> 16)), parts);
  } else {
    const float2 pair = *reinterpret_cast<const float2*>(static_cast<const float*>(call.q) + at);
    SplitPair(pair.x, pair.y, parts);
  }
}

// The warp's quarter of the queries, as A.
template <int kSize, int kHeadTiles, int kParts>
struct QueryFragments {
  static constexpr int kSteps = kSize / kQuarters / 16;
  uint32_t at[kParts][kSteps][kHeadTiles][4];

  // Of heads from `head` on; zeros where there are no more.
  __device__ void Load(const SparseMla& call, int64_t token, int64_t head) {
    const int g = LaneId() / 4, t = LaneId() % 4;
    const int first = WarpId() % kQuarters * (kSize / kQuarters) + 2 * t;
#pragma unroll
    for (int m = 0; m < kHeadTiles; ++m) {
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int64_t h = head + m * kLatentTileHeads + g + i % 2 * 8;
          uint32_t parts[kParts] = {};
          if (h < call.heads) {
            LoadQueryPair(call, token * call.heads + h, first + step * 16 + i / 2 * 8, parts);
          }
#pragma unroll
          for (int p = 0; p < kParts; ++p) at[p][step][m][i] = parts[p];
        }
      }
    }
  }

  // Scores of the warp's half of a tile's rows from its quarter, to scores[quarter][head][row].
  __device__ void Score(const uint8_t* tile, int stride, float* scores) const {
    const int lane = LaneId(), quarter = WarpId() % kQuarters, half = WarpId() / kQuarters;
    const uint8_t* rows = tile + (16 * half + lane / 16 * 8 + lane % 8) * stride +
                          2 * (quarter * (kSize / kQuarters) + lane / 8 % 2 * 8);
    float sums[kHeadTiles][2][4] = {};
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      uint32_t b[4];
      ptx::LoadMatrices(rows + step * 32, b);
#pragma unroll
      for (int p = kParts - 1; p >= 0; --p) {  // small ones first
#pragma unroll
        for (int m = 0; m < kHeadTiles; ++m) {
          ptx::MmaBf16(sums[m][0], at[p][step][m], b[0], b[1]);
          ptx::MmaBf16(sums[m][1], at[p][step][m], b[2], b[3]);
        }
      }
    }
    const int head = quarter * kHeadTiles * kLatentTileHeads + lane / 4;
    float* to = scores + head * kScoreStride + 16 * half + 2 * (lane % 4);
#pragma unroll
    for (int m = 0; m < kHeadTiles; ++m) {
#pragma unroll
      for (int n = 0; n < 2; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float* at_head = to + (m * kLatentTileHeads + 8 * i) * kScoreStride + 8 * n;
          *reinterpret_cast<float2*>(at_head) =
              make_float2(sums[m][n][2 * i], sums[m][n][2 * i + 1]);
        }
      }
    }
  }
};

// A warp has some heads, a lane a row of the tile. Weights are exp2(score - max), in kParts parts as A of the next product.
template <int kHeads, int kParts>
struct TileSoftmax {
  static constexpr int kOwn = kHeads / kTileWarps;
  float max[kOwn], sum[kOwn];  // sums are those of the lane's rows

  __device__ void Clear() {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) max[i] = -INFINITY, sum[i] = 0;
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
      const float base = max[i] == -INFINITY ? 0 : max[i];
      const float weight = exp2f(score - base), keep = exp2f(old - base);
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
template <int kHeadTiles, int kParts>
struct TileValues {
  static constexpr int kColumns = kWarpChannels / 8;  // tiles of eight channels
  float sums[kHeadTiles][kColumns][4];

  __device__ void Clear() {
#pragma unroll
    for (int m = 0; m < kHeadTiles; ++m) {
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[m][n][i] = 0;
      }
    }
  }
  __device__ void Rescale(const float* keeps) {
#pragma unroll
    for (int m = 0; m < kHeadTiles; ++m) {
      const float* own = keeps + m * kLatentTileHeads + LaneId() / 4;
      const float low = own[0], high = own[8];
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
        sums[m][n][0] *= low, sums[m][n][1] *= low;
        sums[m][n][2] *= high, sums[m][n][3] *= high;
      }
    }
  }
  __device__ void Add(const uint8_t* weights, const uint8_t* tile, int stride) {
    constexpr int kHeads = kHeadTiles * kLatentTileHeads;
    const int lane = LaneId();
    const uint8_t* a_row = weights + lane % 16 * kWeightStride + lane / 16 * 16;
    const uint8_t* b_row =
        tile + lane % 16 * stride + 2 * (WarpId() * kWarpChannels + lane / 16 * 8);
#pragma unroll
    for (int k = 0; k < kLatentTileRows / 16; ++k) {
      uint32_t a[kParts][kHeadTiles][4];
#pragma unroll
      for (int p = 0; p < kParts; ++p) {
#pragma unroll
        for (int m = 0; m < kHeadTiles; ++m) {
          const int head = p * kHeads + m * kLatentTileHeads;
          ptx::LoadMatrices(a_row + head * kWeightStride + k * 32, a[p][m]);
        }
      }
#pragma unroll
      for (int n = 0; n < kColumns; n += 2) {
        uint32_t b[4];
        ptx::LoadMatricesTransposed(b_row + k * 16 * stride + n * 16, b);
#pragma unroll
        for (int p = kParts - 1; p >= 0; --p) {
#pragma unroll
          for (int m = 0; m < kHeadTiles; ++m) {
            ptx::MmaBf16(sums[m][n], a[p][m], b[0], b[1]);
            ptx::MmaBf16(sums[m][n + 1], a[p][m], b[2], b[3]);
          }
        }
      }
    }
  }
};

}  // namespace pagefuse::cuda::latent
