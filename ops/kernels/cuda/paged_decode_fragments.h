// SPDX-License-Identifier: Apache-2.0
// What a warp of a decode over rows multiplies: queries, keys and values of one KV head as fragments (fragments.h). Device code: for .cu files.
#pragma once

#include "pagefuse/ops/kernels/cuda/convert.h"
#include "pagefuse/ops/kernels/cuda/paged_decode_softmax.h"

namespace pagefuse::cuda {

template <DecodeFormat format, int size, bool is_exact>
struct DecodeTraits {
  static constexpr DecodeFormat kFormat = format;
  static constexpr int kHeadSize = size;
  static constexpr bool kExact = is_exact;
  static constexpr bool kIsBfloat = format == DecodeFormat::kBfloat16;
  static constexpr bool kIsCoded = format == DecodeFormat::kInt8 || format == DecodeFormat::kE4M3;
  static constexpr int kBytes = kIsCoded ? 1 : 2;
  static constexpr int kWarps = DecodeWarps(format, size, is_exact);
  static constexpr int kThreads = (kWarps + (kWarps == 16 ? 4 : 1)) * kWarp;
  static constexpr PageLayout Layout() { return {kBytes, size, 1}; }
  static constexpr int kSteps = size / 16;
  static constexpr int kParts = DecodeParts(format, is_exact);
};

template <class Traits>
__device__ uint32_t PackPair(float a, float b) {
  return Traits::kIsBfloat ? PackBfloats(a, b) : PackHalves(a, b);
}
// What a pair lacks of two floats, which become that.
template <class Traits>
__device__ void TakePair(uint32_t pair, float& a, float& b) {
  const auto low = static_cast<uint16_t>(pair);
  const auto high = static_cast<uint16_t>(pair >> 16);
  if constexpr (Traits::kIsBfloat) {
    a -= DecodeFloat<Bfloat16Format>(low), b -= DecodeFloat<Bfloat16Format>(high);
  } else {
    a -= DecodeFloat<Float16Format>(low), b -= DecodeFloat<Float16Format>(high);
  }
}

template <class Traits>
__device__ void Multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (Traits::kIsBfloat) {
    ptx::MultiplyBfloats(c, a, b0, b1);
  } else {
    ptx::MultiplyHalves(c, a, b0, b1);
  }
}

// Four elements of a query row as floats.
__device__ inline void LoadFour(DataType type, const void* query, int64_t at, float (&x)[4]) {
  if (type == DataType::kFloat) {
    const float4 v = *reinterpret_cast<const float4*>(static_cast<const float*>(query) + at);
    x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
    return;
  }
  const uint2 v = *reinterpret_cast<const uint2*>(static_cast<const uint16_t*>(query) + at);
  const uint32_t words[2] = {v.x, v.y};
  for (int i = 0; i < 4; ++i) {
    const auto code = static_cast<uint16_t>(words[i / 2] >> (16 * (i % 2)));
    x[i] = type == DataType::kFloat16 ? DecodeFloat<Float16Format>(code)
                                      : DecodeFloat<Bfloat16Format>(code);
  }
}

// The queries of a KV head as B of its products, columns g; each part has products of its own.
template <class Traits>
struct QueryFragments {
  static constexpr int kHeld = Traits::kParts > 1 ? 2 : 1;
  uint32_t parts[kHeld][Traits::kSteps][2];
  uint32_t third;    // in shared memory: of this lane, [steps] of 32 lanes
  float factors[2];  // what products of heads 2t and 2t + 1 lack

  // Of row `row` of [T, Hq]; zeros where it is negative.
  __device__ void Load(const PagedAttention& p, int64_t row) {
    const int t = LaneId() % 4;
    const int64_t at = row * Traits::kHeadSize;
    const auto load = [&](int step, float(&x)[4]) {
      if (row < 0) {
        x[0] = x[1] = x[2] = x[3] = 0;
      } else {
        LoadFour(p.compute_type, p.query, at + Traits::Layout().ScoreChannel(t, step), x);
      }
    };
    int exponent = 0;
    if constexpr (!Traits::kIsBfloat) exponent = ScaleFor(load);
    const float scale = __uint_as_float(static_cast<uint32_t>(127 + exponent) << 23);
    OfColumns(__uint_as_float(static_cast<uint32_t>(127 - exponent) << 23), factors);
#pragma unroll
    for (int s = 0; s < Traits::kSteps; ++s) {
      float x[4];
      load(s, x);
#pragma unroll
      for (int i = 0; i < 4; ++i) x[i] *= scale;
#pragma unroll
      for (int pair = 0; pair < 2; ++pair) {
        float a = x[2 * pair], b = x[2 * pair + 1];
        parts[0][s][pair] = PackPair<Traits>(a, b);
        if constexpr (Traits::kParts > 1) {
          TakePair<Traits>(parts[0][s][pair], a, b);
          parts[1][s][pair] = PackPair<Traits>(a, b);
        }
        if constexpr (Traits::kParts > 2) {
          TakePair<Traits>(parts[1][s][pair], a, b);
          ptx::StoreShared(ThirdAt(s) + 4 * pair, PackPair<Traits>(a, b));
        }
      }
    }
  }

  __device__ uint32_t ThirdAt(int step) const { return third + step * kWarp * kThirdPartBytes; }

 private:
  template <class Load>
  static __device__ int ScaleFor(const Load& load) {
    float largest = 0;
#pragma unroll 1
    for (int s = 0; s < Traits::kSteps; ++s) {
      float x[4];
      load(s, x);
      for (int i = 0; i < 4; ++i) largest = fmaxf(largest, fabsf(x[i]));
    }
    largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 2));
    return HalfExponent(largest);
  }
};

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

// Products of keys g and g + 8 of a page with queries 2t and 2t + 1.
template <class Traits>
__device__ void Scores(const QueryFragments<Traits>& query, const StagedPage& page,
                       float (&dots)[2][2]) {
  const int g = LaneId() / 4, t = LaneId() % 4;
  float c[4] = {}, e[4] = {};  // two chains
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
#pragma unroll
      for (int n = 0; n < Traits::Layout().steps_of_piece(); ++n) {
        const int step = (span * 2 + i) * Traits::Layout().steps_of_piece() + n;
        uint32_t a[4];
        if constexpr (Traits::kIsCoded) {
          WidenWord<Traits>(w[n], a[0], a[2]);
          WidenWord<Traits>(v[n], a[1], a[3]);
        } else {
          a[0] = w[2 * n], a[1] = v[2 * n], a[2] = w[2 * n + 1], a[3] = v[2 * n + 1];
        }
        Multiply<Traits>(n % 2 == 0 ? c : e, a, query.parts[0][step][0], query.parts[0][step][1]);
        if constexpr (Traits::kParts > 1) {
          Multiply<Traits>(n % 2 == 0 ? e : c, a, query.parts[1][step][0], query.parts[1][step][1]);
        }
        if constexpr (Traits::kParts > 2) {
          const auto pairs = ptx::LoadShared<uint2>(query.ThirdAt(step));
          Multiply<Traits>(n % 2 == 0 ? c : e, a, pairs.x, pairs.y);
        }
      }
    }
  }
#pragma unroll
  for (int j = 0; j < 2; ++j) dots[0][j] = c[j] + e[j], dots[1][j] = c[2 + j] + e[2 + j];
}

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
  __device__ void Add(int tile, const uint32_t (&a)[4], const uint32_t (&weights)[2],
                      const uint32_t (&rest)[2]) {
    Multiply<Traits>(tiles[tile], a, weights[0], weights[1]);
    if constexpr (Traits::kExact) Multiply<Traits>(tiles[tile], a, rest[0], rest[1]);
  }
  // Adds weights times values of a page. Rows of keys that nobody sees may hold anything.
  template <bool kPlain>
  __device__ void AddPage(const StagedPage& page, PageMask mask, const uint32_t (&weights)[2],
                          const uint32_t (&rest)[2]) {
    const int g = LaneId() / 4, t = LaneId() % 4;
#pragma unroll
    for (int span = 0; span < Traits::Layout().spans(); ++span) {
      uint4 rows[4];  // keys 2t, 2t + 1, 2t + 8, 2t + 9
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const int key = 2 * t + k % 2 + k / 2 * 8;
        rows[k] = ptx::LoadShared<uint4>(page.values + span * page.span_bytes + key * kSpanBytes +
                                         (g ^ key % 8) * 16);
        if (!kPlain && !mask.Has(key)) rows[k] = {0, 0, 0, 0};
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const uint32_t w[4] = {(&rows[0].x)[j], (&rows[1].x)[j], (&rows[2].x)[j], (&rows[3].x)[j]};
        if constexpr (Traits::kIsCoded) {
          const int tile = (span * 4 + j) * 2;
          uint32_t a[4], b[4];
          WidenWord<Traits>(BytePermute(w[0], w[1], 0x5140), a[0], a[1]);
          WidenWord<Traits>(BytePermute(w[2], w[3], 0x5140), a[2], a[3]);
          Add(tile, a, weights, rest);
          WidenWord<Traits>(BytePermute(w[0], w[1], 0x7362), b[0], b[1]);
          WidenWord<Traits>(BytePermute(w[2], w[3], 0x7362), b[2], b[3]);
          Add(tile + 1, b, weights, rest);
        } else {
          const uint32_t a[4] = {BytePermute(w[0], w[1], 0x5410), BytePermute(w[0], w[1], 0x7632),
                                 BytePermute(w[2], w[3], 0x5410), BytePermute(w[2], w[3], 0x7632)};
          Add(span * 4 + j, a, weights, rest);
        }
      }
    }
  }
  __device__ void Store(float* values, int group, float factor) const {
    const int g = LaneId() / 4, t = LaneId() % 4;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      if (2 * t + j >= group) continue;
      float* row = values + (2 * t + j) * Traits::kHeadSize;
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        const float2 pair = {tiles[i][j] * factor, tiles[i][2 + j] * factor};
        *reinterpret_cast<float2*>(row + Traits::Layout().ValueChannel(g, i, 0)) = pair;
      }
    }
  }
};

}  // namespace pagefuse::cuda
