// SPDX-License-Identifier: Apache-2.0
// Products of a tile of 32 cache rows with queries and weights of up to 64 heads, and the softmax between them. Device code: for .cu files.
//
// With g = lane / 4 and t = lane % 4, as ptx.h draws the fragments of mma:
//   scores  S [heads, rows] = Q K^T   of a quarter of the elements by each warp; Q stays in registers
//   values  O [heads, 512] += P V     of 64 channels by each warp
// Eight warps share out the rows of scores, 16 the heads of both.
#pragma once

#include "pagefuse/ops/kernels/cuda/sparse_mla_ptx.h"
#include "pagefuse/ops/kernels/cuda/sparse_mla_results.h"
#include "pagefuse/ops/kernels/cuda/sparse_mla_tile_rows.h"

namespace pagefuse::cuda::latent {

inline constexpr int kQuarters = 4;
inline constexpr int kScoreStride = 40;       // floats: neighbours g of C lie in different banks
inline constexpr int kWeightStride = 2 * 40;  // bytes, likewise for matrices of A
inline constexpr int kValueWarps = 8;         // that share out the channels
inline constexpr int kWarpChannels = kLatentValues / kValueWarps;

// Who has what of the products of kHeadTiles times 16 heads.
template <int kHeadTilesOf>
struct TileWork {
  static constexpr int kHeadTiles = kHeadTilesOf, kHeads = kHeadTiles * kLatentTileHeads;
  static constexpr int kWarps = kHeadTiles > 2 ? 16 : 8, kThreads = kWarps * kWarp;
  // Of a warp's scores: tiles of heads, and halves of the tile's rows.
  static constexpr int kScoreHeads = kHeadTiles > 2 ? 1 : kHeadTiles;
  static constexpr int kScoreHalves = kHeadTiles > 2 ? 2 : 1;
  static_assert(kQuarters * (kHeadTiles / kScoreHeads) * (2 / kScoreHalves) == kWarps);
  static constexpr int kValueHeads = kHeadTiles > 2 ? 2 : kHeadTiles;

  __device__ static int ScoreQuarter() { return WarpId() % kQuarters; }
  __device__ static int ScoreHead() {
    return kHeadTiles > 2 ? WarpId() / kQuarters * kLatentTileHeads : 0;
  }
  __device__ static int ScoreHalf() { return kHeadTiles > 2 ? 0 : WarpId() / kQuarters; }
  __device__ static int ValueHead() {
    return WarpId() / kValueWarps * (kValueHeads * kLatentTileHeads);
  }
  __device__ static int ValueChannel() { return WarpId() % kValueWarps * kWarpChannels; }
};

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
template <int kSize, class Work, int kParts>
struct QueryFragments {
  static constexpr int kSteps = kSize / kQuarters / 16, kTiles = Work::kScoreHeads;
  uint32_t at[kParts][kSteps][kTiles][4];

  // Of the CTA's heads, which begin at `head`; zeros where there are no more.
  __device__ void Load(const SparseMla& call, int64_t token, int64_t head) {
    const int g = LaneId() / 4, t = LaneId() % 4;
    const int first = Work::ScoreQuarter() * (kSize / kQuarters) + 2 * t;
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
#pragma unroll
      for (int upper = 0; upper < 2; ++upper) {
        const int64_t h = head + Work::ScoreHead() + m * kLatentTileHeads + g + upper * 8;
#pragma unroll
        for (int step = 0; step < kSteps; ++step) {
#pragma unroll
          for (int right = 0; right < 2; ++right) {
            uint32_t parts[kParts] = {};
            if (h < call.heads) {
              LoadQueryPair(call, token * call.heads + h, first + step * 16 + right * 8, parts);
            }
#pragma unroll
            for (int p = 0; p < kParts; ++p) at[p][step][m][2 * right + upper] = parts[p];
          }
        }
      }
    }
  }

  // Scores of the warp's rows of a tile from its quarter, to scores[quarter][head][row].
  template <class Tile>
  __device__ void Score(const Tile& tile, float* scores) const {
#pragma unroll
    for (int half = 0; half < Work::kScoreHalves; ++half) {
      ScoreHalfOf(tile, Work::ScoreHalf() + half, scores);
    }
  }

 private:
  template <class Tile>
  __device__ void ScoreHalfOf(const Tile& tile, int half, float* scores) const {
    const int lane = LaneId(), quarter = Work::ScoreQuarter();
    const uint8_t* rows = tile.Row(16 * half + lane / 16 * 8 + lane % 8) +
                          2 * (quarter * (kSize / kQuarters) + lane / 8 % 2 * 8);
    float sums[kTiles][2][4] = {};
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      uint32_t b[4];
      ptx::LoadMatrices(rows + step * 32, b);
#pragma unroll
      for (int p = kParts - 1; p >= 0; --p) {  // small ones first
#pragma unroll
        for (int m = 0; m < kTiles; ++m) {
          ptx::MmaBf16(sums[m][0], at[p][step][m], b[0], b[1]);
          ptx::MmaBf16(sums[m][1], at[p][step][m], b[2], b[3]);
        }
      }
    }
    const int head = quarter * Work::kHeads + Work::ScoreHead() + lane / 4;
    float* to = scores + head * kScoreStride + 16 * half + 2 * (lane % 4);
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
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
template <class Work, int kParts>
struct TileSoftmax {
  static constexpr int kHeads = Work::kHeads, kOwn = kHeads / Work::kWarps;
  // Where registers are short, largest scores and sums are in shared memory: [heads, lanes].
  static constexpr bool kShares = Work::kWarps > 8;
  static constexpr int kSharedBytes = kShares ? kHeads * kWarp * 8 : 0;

  float2* shared;
  float2 own[kOwn];

  // Largest score of head i of the warp's, and the sum of weights of the lane's rows.
  __device__ float2& Sums(int i) {
    if constexpr (kShares) return shared[HeadOf(i) * kWarp + LaneId()];
    return own[i];
  }
  __device__ explicit TileSoftmax(void* in_shared) : shared(static_cast<float2*>(in_shared)) {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) Sums(i) = {-INFINITY, 0};
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
      const float2 old = Sums(i);
      const float max = fmaxf(old.x, MaxOfLanes(score));
      const float base = max == -INFINITY ? 0 : max;
      const float weight = exp2f(score - base), keep = exp2f(old.x - base);
      Sums(i) = {max, old.y * keep + weight};
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
