// SPDX-License-Identifier: Apache-2.0
// What a warp of a decode over rows multiplies: keys and values of one KV head as fragments (fragments.h). Device code: for .cu files.
#pragma once

#include "pagefuse/ops/kernels/cuda/paged_decode_queries.h"

namespace pagefuse::cuda {

template <class Traits>
__device__ void Multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (Traits::kIsBfloat) {
    ptx::MultiplyBfloats(c, a, b0, b1);
  } else {
    ptx::MultiplyHalves(c, a, b0, b1);
  }
}

// Codes of a word as B of one step, or as two registers of A.
template <class Traits>
__device__ void WidenWord(uint32_t word, uint32_t& low, uint32_t& high) {
  if constexpr (Traits::kFormat == DecodeFormat::kInt8) {
    WidenInt8(word, low, high);
  } else {
    WidenE4m3(word, low, high);
  }
}

// Where a page lies in shared memory.
struct StagedPage {
  uint32_t keys, values;  // of the warp's head
  uint32_t span_bytes;    // from a span to the next
  uint32_t key_scales;    // of the warp's head; 0: none
  uint32_t value_scales;
  uint32_t scale_row_bytes;
};

// Sums of products with keys g and g + 8 of a page, in chains that do not wait one for the other.
template <class Traits>
struct ScoreSums {
  float chains[Traits::kIsFloat ? 4 : 2][4] = {};

  // A piece of both keys.
  __device__ void Add(const QueryFragments<Traits>& query, int piece, const uint32_t (&w)[4],
                      const uint32_t (&v)[4]) {
    if constexpr (Traits::kIsFloat) {
      AddFloats(query, piece, w, v);
    } else {
      AddSteps(query, piece, w, v);
    }
  }
  __device__ float Total(int i) const {
    const float total = chains[0][i] + chains[1][i];
    if constexpr (Traits::kIsFloat) return total + (chains[2][i] + chains[3][i]);
    return total;
  }

 private:
  __device__ void AddFloats(const QueryFragments<Traits>& query, int piece, const uint32_t (&w)[4],
                            const uint32_t (&v)[4]) {
    const auto channels = ptx::LoadShared<float4>(query.SharedAt(piece));
    uint32_t high[4], low[4];
    SplitNearest(channels.x, high[0], low[0]);
    SplitNearest(channels.y, high[1], low[1]);
    SplitNearest(channels.z, high[2], low[2]);
    SplitNearest(channels.w, high[3], low[3]);
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const uint32_t a[4] = {w[2 * n], v[2 * n], w[2 * n + 1], v[2 * n + 1]};
      MultiplyParts(chains[n], chains[2 + n], a, high + 2 * n, low + 2 * n);
    }
  }
  __device__ void AddSteps(const QueryFragments<Traits>& query, int piece, const uint32_t (&w)[4],
                           const uint32_t (&v)[4]) {
#pragma unroll
    for (int n = 0; n < Traits::Layout().steps_of_piece(); ++n) {
      const int step = piece * Traits::Layout().steps_of_piece() + n;
      uint32_t a[4];
      if constexpr (Traits::kIsCoded) {
        WidenWord<Traits>(w[n], a[0], a[2]);
        WidenWord<Traits>(v[n], a[1], a[3]);
      } else {
        a[0] = w[2 * n], a[1] = v[2 * n], a[2] = w[2 * n + 1], a[3] = v[2 * n + 1];
      }
      float(&c)[4] = chains[n % 2];
      float(&e)[4] = chains[1 - n % 2];
      Multiply<Traits>(c, a, query.parts[0][step][0], query.parts[0][step][1]);
      if constexpr (Traits::kParts > 1) {
        Multiply<Traits>(e, a, query.parts[1][step][0], query.parts[1][step][1]);
      }
      if constexpr (Traits::kParts > 2) {
        const auto pairs = ptx::LoadShared<uint2>(query.SharedAt(step));
        Multiply<Traits>(c, a, pairs.x, pairs.y);
      }
    }
  }
};

// Products of keys g and g + 8 of a page with queries 2t and 2t + 1.
template <class Traits>
__device__ void Scores(const QueryFragments<Traits>& query, const StagedPage& page,
                       float (&dots)[2][2]) {
  const int g = LaneId() / 4, t = LaneId() % 4;
  ScoreSums<Traits> sums;
  const uint32_t row = page.keys + g * kSpanBytes;
#pragma unroll
  for (int span = 0; span < Traits::Layout().spans(); ++span) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t at = row + span * page.span_bytes + ((2 * t + i) ^ g) * 16;
      const auto upper = ptx::LoadShared<uint4>(at);
      const auto lower = ptx::LoadShared<uint4>(at + 8 * kSpanBytes);
      const uint32_t w[4] = {upper.x, upper.y, upper.z, upper.w};
      const uint32_t v[4] = {lower.x, lower.y, lower.z, lower.w};
      sums.Add(query, span * 2 + i, w, v);
    }
  }
#pragma unroll
  for (int j = 0; j < 2; ++j) dots[0][j] = sums.Total(j), dots[1][j] = sums.Total(2 + j);
}

// Weights of a page as B of the outputs' products, of head g for keys 2t, 2t + 1, 2t + 8 and 2t + 9; of float queries in two parts.
template <class Traits>
struct WeightFragments {
  uint32_t parts[2][Traits::kIsFloat ? 4 : 2];

  // Of keys g and g + 8 for heads 2t and 2t + 1, which become what first parts lack.
  __device__ static WeightFragments Of(float (&weights)[2][2]) {
    WeightFragments fragments = {};
    auto& [first, second] = fragments.parts;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float* w = weights[half];
      if constexpr (Traits::kIsFloat) {
        TransposeFloats(w[0], w[1]);
#pragma unroll
        for (int j = 0; j < 2; ++j) SplitNearest(w[j], first[2 * half + j], second[2 * half + j]);
      } else {
        const uint32_t pair = PackPair<Traits>(w[0], w[1]);
        first[half] = ptx::Transpose(pair);
        if constexpr (Traits::kExact) {
          TakePair<Traits>(pair, w[0], w[1]);
          if constexpr (Traits::kIsCoded) {
            // Of an infinite weight: that less infinity is no number.
            w[0] = fmaxf(w[0], -kMostWeight), w[1] = fmaxf(w[1], -kMostWeight);
          }
          second[half] = ptx::Transpose(PackPair<Traits>(w[0], w[1]));
        }
      }
    }
    return fragments;
  }
};

// Outputs of the warp's heads so far: C of O^T = V^T P^T.
template <class Traits>
struct OutputFragments {
  static constexpr int kTiles = Traits::Layout().tiles();
  float tiles[kTiles][4];

  __device__ void Clear() {
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      tiles[i][0] = tiles[i][1] = tiles[i][2] = tiles[i][3] = 0;
    }
  }
  // Numbers of this lane's two heads times factors.
  __device__ void Scale(const float (&factors)[2]) {
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      tiles[i][0] *= factors[0], tiles[i][1] *= factors[1];
      tiles[i][2] *= factors[0], tiles[i][3] *= factors[1];
    }
  }
  // Adds weights times values of a page.
  __device__ void AddPage(const StagedPage& page, const WeightFragments<Traits>& weights) {
    const int g = LaneId() / 4, t = LaneId() % 4;
#pragma unroll
    for (int span = 0; span < Traits::Layout().spans(); ++span) {
      uint4 rows[4];  // keys 2t, 2t + 1, 2t + 8, 2t + 9
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const int key = 2 * t + k % 2 + k / 2 * 8;
        rows[k] = ptx::LoadShared<uint4>(page.values + span * page.span_bytes + key * kSpanBytes +
                                         (g ^ key % 8) * 16);
      }
      if constexpr (Traits::kIsFloat) {
        AddFloats(2 * span, {rows[0].x, rows[0].y, rows[1].x, rows[1].y},
                  {rows[2].x, rows[2].y, rows[3].x, rows[3].y}, weights);
        AddFloats(2 * span + 1, {rows[0].z, rows[0].w, rows[1].z, rows[1].w},
                  {rows[2].z, rows[2].w, rows[3].z, rows[3].w}, weights);
      } else {
        AddSpan(span, rows, weights);
      }
    }
  }
  // Two tiles of a lane are four channels that lie together.
  __device__ void Store(float* values, int group, float factor) const {
    const int g = LaneId() / 4, t = LaneId() % 4;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      if (2 * t + j >= group) continue;
      float* row = values + (2 * t + j) * Traits::kHeadSize;
#pragma unroll
      for (int i = 0; i < kTiles; i += 2) {
        float4 four = {tiles[i][j], tiles[i][2 + j], tiles[i + 1][j], tiles[i + 1][2 + j]};
        if constexpr (Traits::kFormat == DecodeFormat::kE4M3) {
          four.x *= factor, four.y *= factor, four.z *= factor, four.w *= factor;
        }
        *reinterpret_cast<float4*>(row + Traits::Layout().ValueChannel(g, i, 0)) = four;
      }
    }
  }

 private:
  __device__ void Add(int tile, const uint32_t (&a)[4], const WeightFragments<Traits>& weights) {
    const auto& [first, second] = weights.parts;
    Multiply<Traits>(tiles[tile], a, first[0], first[1]);
    if constexpr (Traits::kExact) Multiply<Traits>(tiles[tile], a, second[0], second[1]);
  }
  __device__ void AddSpan(int span, const uint4 (&rows)[4],
                          const WeightFragments<Traits>& weights) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const uint32_t w[4] = {(&rows[0].x)[j], (&rows[1].x)[j], (&rows[2].x)[j], (&rows[3].x)[j]};
      if constexpr (Traits::kIsCoded) {
        const int tile = (span * 4 + j) * 2;
        uint32_t a[4], b[4];
        WidenWord<Traits>(BytePermute(w[0], w[1], 0x5140), a[0], a[1]);
        WidenWord<Traits>(BytePermute(w[2], w[3], 0x5140), a[2], a[3]);
        Add(tile, a, weights);
        WidenWord<Traits>(BytePermute(w[0], w[1], 0x7362), b[0], b[1]);
        WidenWord<Traits>(BytePermute(w[2], w[3], 0x7362), b[2], b[3]);
        Add(tile + 1, b, weights);
      } else {
        const uint32_t a[4] = {BytePermute(w[0], w[1], 0x5410), BytePermute(w[0], w[1], 0x7632),
                               BytePermute(w[2], w[3], 0x5410), BytePermute(w[2], w[3], 0x7632)};
        Add(span * 4 + j, a, weights);
      }
    }
  }
  // Two channels of each of keys 2t and 2t + 1, and of 2t + 8 and 2t + 9. The products of a page are summed apart: these sums are cut off, not
  // rounded.
  __device__ void AddFloats(int tile, const uint32_t (&front)[4], const uint32_t (&back)[4],
                            const WeightFragments<Traits>& weights) {
    const auto& [first, second] = weights.parts;
    float sums[4] = {};
    MultiplyParts(sums, sums, front, first, second);
    MultiplyParts(sums, sums, back, first + 2, second + 2);
#pragma unroll
    for (int i = 0; i < 4; ++i) tiles[tile][i] += sums[i];
  }
};

// Keys that nobody sees get no weight; their rows may hold anything, and become zeros in shared memory. For few pages.
template <class Traits>
__device__ void HideKeys(const StagedPage& page, PageMask mask, float (&scores)[2][2],
                         float (&scales)[2]) {
  const int g = LaneId() / 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (mask.Has(half * 8 + g)) continue;
    scores[half][0] = scores[half][1] = -INFINITY;
    scales[half] = 1;
  }
#pragma unroll 1
  for (int key = 0; key < kPageTokens; ++key) {
    if (mask.Has(key)) continue;
#pragma unroll 1
    for (int span = 0; span < Traits::Layout().spans(); ++span) {
      const uint32_t at = page.values + span * page.span_bytes + key * kSpanBytes;
      ptx::StoreShared(at + 4 * LaneId(), uint32_t{0});
    }
  }
  ptx::FenceForProducts();  // before the next copy to that place
  __syncwarp();
}

}  // namespace pagefuse::cuda
