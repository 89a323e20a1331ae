// SPDX-License-Identifier: Apache-2.0
// Products of queries with a tile of 32 cache rows; how a CTA's warps share these products and those of sparse_mla_tile_sums.h. Device code: for
// .cu files.
//
// With g = lane / 4 and t = lane % 4, as ptx.h draws the fragments of mma:
//   scores  S [heads, rows] = Q K^T   of a quarter of the elements by each warp
//   values  O [heads, 512] += P V     of 64 channels by each warp
// Eight warps share out the rows of scores, 16 the heads of both.
#pragma once

#include "pagefuse/ops/kernels/cuda/sparse_mla_ptx.h"
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

// The warp's quarter of the queries, as A, in registers.
template <int kSize, class Work, int kParts>
struct RegisterQuery {
  static constexpr int kSteps = kSize / kQuarters / 16, kTiles = Work::kScoreHeads;
  static constexpr int kBytes = 0;  // of shared memory
  uint32_t at[kParts][kSteps][kTiles][4];

  // Of the CTA's heads, which begin at `head`; zeros where there are no more.
  __device__ RegisterQuery(const SparseMla& call, int64_t token, int64_t head, uint8_t*) {
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
  __device__ void Load(int part, int step, int m, uint32_t (&a)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = at[part][step][m][i];
  }
};

// The same in shared memory, where registers are short, of bfloat16 queries: they come with the first copies of rows.
template <int kSize, class Work>
struct SharedQuery {
  static constexpr int kSteps = kSize / kQuarters / 16, kStride = 2 * kSize + kPadding;
  static constexpr int kBytes = Work::kHeads * kStride;
  uint8_t* shared;

  __device__ SharedQuery(const SparseMla& call, int64_t token, int64_t head, uint8_t* to)
      : shared(to) {
    const auto* q = static_cast<const uint8_t*>(call.q);
#pragma unroll 1
    for (int i = WarpId(); i < Work::kHeads; i += Work::kWarps) {
      const int64_t at = (token * call.heads + head + i) * (2 * kSize);
      const uint8_t* from = head + i < call.heads ? q + at : nullptr;
      CopyRowAsync<Bf16Rows<kSize>>(from, nullptr, q, shared + i * kStride);
    }
  }
  __device__ void Load(int, int step, int m, uint32_t (&a)[4]) const {
    const int head = Work::ScoreHead() + m * kLatentTileHeads + LaneId() % 16;
    const int d = Work::ScoreQuarter() * (kSize / kQuarters) + step * 16 + LaneId() / 16 * 8;
    ptx::LoadMatrices(shared + head * kStride + 2 * d, a);
  }
};

// Scores of the warp's rows of a tile from its quarter.
template <int kSize, class Work, int kParts>
struct TileScores {
  static constexpr int kSteps = kSize / kQuarters / 16, kTiles = Work::kScoreHeads,
                       kHalves = Work::kScoreHalves;
  float sums[kHalves][kTiles][2][4] = {};

  template <class Query, class Tile>
  __device__ void Add(const Query& query, const Tile& tile) {
    const int lane = LaneId();
    const uint8_t* rows[kHalves];
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      rows[half] = tile.Row(16 * (Work::ScoreHalf() + half) + lane / 16 * 8 + lane % 8) +
                   2 * (Work::ScoreQuarter() * (kSize / kQuarters) + lane / 8 % 2 * 8);
    }
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      uint32_t b[kHalves][4];
#pragma unroll
      for (int half = 0; half < kHalves; ++half) {
        ptx::LoadMatrices(rows[half] + step * 32, b[half]);
      }
#pragma unroll
      for (int p = kParts - 1; p >= 0; --p) {  // small ones first
#pragma unroll
        for (int m = 0; m < kTiles; ++m) {
          uint32_t a[4];
          query.Load(p, step, m, a);
#pragma unroll
          for (int half = 0; half < kHalves; ++half) {
            ptx::MmaBf16(sums[half][m][0], a, b[half][0], b[half][1]);
            ptx::MmaBf16(sums[half][m][1], a, b[half][2], b[half][3]);
          }
        }
      }
    }
  }
  // To scores[quarter][head][row].
  __device__ void Store(float* scores) const {
    const int head = Work::ScoreQuarter() * Work::kHeads + Work::ScoreHead() + LaneId() / 4;
    float* to = scores + head * kScoreStride + 16 * Work::ScoreHalf() + 2 * (LaneId() % 4);
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          const float* c = sums[half][m][n];
          float* own = to + m * kLatentTileHeads * kScoreStride + 16 * half + 8 * n;
          *reinterpret_cast<float2*>(own) = make_float2(c[0], c[1]);
          *reinterpret_cast<float2*>(own + 8 * kScoreStride) = make_float2(c[2], c[3]);
        }
      }
    }
  }
};

}  // namespace pagefuse::cuda::latent
