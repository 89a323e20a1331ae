// SPDX-License-Identifier: Apache-2.0
// The queries of a warp of a decode over rows, as what its products take (fragments.h). Device code: for .cu files.
#pragma once

#include "pagefuse/ops/kernels/cuda/convert.h"
#include "pagefuse/ops/kernels/cuda/paged_decode_floats.h"
#include "pagefuse/ops/kernels/cuda/paged_decode_softmax.h"

namespace pagefuse::cuda {

template <DecodeFormat format, int size, bool is_exact>
struct DecodeTraits {
  static constexpr DecodeFormat kFormat = format;
  static constexpr int kHeadSize = size;
  static constexpr bool kExact = is_exact;
  static constexpr bool kIsBfloat = format == DecodeFormat::kBfloat16;
  static constexpr bool kIsFloat = format == DecodeFormat::kFloat;
  static constexpr bool kIsCoded = format == DecodeFormat::kInt8 || format == DecodeFormat::kE4M3;
  static constexpr int kBytes = kIsCoded ? 1 : kIsFloat ? 4 : 2;
  static constexpr int kWarps = DecodeWarps(format, size, is_exact);
  static constexpr int kThreads = (kWarps + 1) * kWarp;
  static constexpr PageLayout Layout() { return {kBytes, size, 1}; }
  static constexpr int kSteps = size / 16;
  static constexpr int kParts = DecodeParts(format, is_exact);
  static constexpr int kSharedPartBytes = SharedPartBytes(format, is_exact);
};

template <class Traits>
__device__ uint32_t PackPair(float a, float b) {
  return Traits::kIsBfloat ? PackBfloats(a, b) : PackHalves(a, b);
}
// What a pair lacks of two floats, which become that.
template <class Traits>
__device__ void TakePair(uint32_t pair, float& a, float& b) {
  if constexpr (Traits::kIsBfloat) {
    a -= __uint_as_float(pair << 16), b -= __uint_as_float(pair & 0xFFFF0000);
  } else {
    a -= HalfToFloat(static_cast<uint16_t>(pair));
    b -= HalfToFloat(static_cast<uint16_t>(pair >> 16));
  }
}

// The queries of a KV head as B of its products, columns g; each part has products of its own.
template <class Traits>
struct QueryFragments {
  static constexpr int kHeld = Traits::kParts > 1 ? 2 : 1;
  uint32_t parts[kHeld][Traits::kSteps][2];  // of float rows nothing
  uint32_t shared;   // what lies in shared memory: of this lane, [steps] of 32 lanes
  float factors[2];  // what products of heads 2t and 2t + 1 lack

  // Of row `row` of [T, Hq]; zeros where it is negative.
  __device__ void Load(const PagedAttention& p, int row) {
    factors[0] = factors[1] = 1;
    if constexpr (Traits::kIsFloat) {
      KeepFloats(static_cast<const float*>(p.query), row);
    } else if constexpr (Traits::kExact) {
      LoadFloats(static_cast<const float*>(p.query), row);
    } else {
      LoadWords(static_cast<const uint16_t*>(p.query), row);
      if constexpr (Traits::kIsCoded) {
        if (p.compute_type == DataType::kBfloat16) ToHalves();
      }
    }
  }

  __device__ uint32_t SharedAt(int step) const {
    return shared + step * kWarp * Traits::kSharedPartBytes;
  }

 private:
  static __device__ int FirstOf(int row) {
    return row * Traits::kHeadSize + Traits::Layout().ScoreChannel(LaneId() % 4, 0);
  }
  // From FirstOf to the channels of a step.
  static constexpr __device__ int ChannelOf(int step) {
    return Traits::Layout().ScoreChannel(0, step);
  }
  // Two steps are eight channels that lie together.
  __device__ void LoadWords(const uint16_t* query, int row) {
    const uint16_t* from = query + FirstOf(row);
#pragma unroll
    for (int s = 0; s < Traits::kSteps; s += 2) {
      uint4 v = {};
      if (row >= 0) v = *reinterpret_cast<const uint4*>(from + ChannelOf(s));
      parts[0][s][0] = v.x, parts[0][s][1] = v.y;
      parts[0][s + 1][0] = v.z, parts[0][s + 1][1] = v.w;
    }
  }
  // The factor that elements get, and what products lack then.
  __device__ float ScaleBy(int exponent) {
    OfColumns(__uint_as_float(static_cast<uint32_t>(127 - exponent) << 23), factors);
    return __uint_as_float(static_cast<uint32_t>(127 + exponent) << 23);
  }
  static __device__ float LargestOfRow(float largest) {
    largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 1));
    return fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 2));
  }
  // Pairs of bfloat16 become pairs of halves.
  __device__ void ToHalves() {
    uint32_t largest =
        0;  // as the bits of a float are ordered; what lies below an element does not matter to its exponent
#pragma unroll
    for (int s = 0; s < Traits::kSteps; ++s) {
#pragma unroll
      for (const uint32_t pair : parts[0][s]) {
        largest = max(largest, max(pair & 0x7FFFFFFF, pair << 16 & 0x7FFFFFFF));
      }
    }
    const float scale = ScaleBy(HalfExponent(LargestOfRow(__uint_as_float(largest))));
#pragma unroll
    for (int s = 0; s < Traits::kSteps; ++s) {
#pragma unroll
      for (uint32_t& pair : parts[0][s]) {
        pair = PackHalves(__uint_as_float(pair << 16) * scale,
                          __uint_as_float(pair & 0xFFFF0000) * scale);
      }
    }
  }
  static __device__ float4 FloatsOf(const float* query, int row, int step) {
    if (row < 0) return {};
    return *reinterpret_cast<const float4*>(query + FirstOf(row) + ChannelOf(step));
  }
  __device__ void KeepFloats(const float* query, int row) {
#pragma unroll 4
    for (int s = 0; s < Traits::kSteps; ++s) {
      ptx::StoreShared(SharedAt(s), FloatsOf(query, row, s));
    }
  }
  __device__ void LoadFloats(const float* query, int row) {
    float scale = 1;
    if constexpr (!Traits::kIsBfloat) {
      float largest = 0;
#pragma unroll 1
      for (int s = 0; s < Traits::kSteps; ++s) {
        const float4 x = FloatsOf(query, row, s);
        largest =
            fmaxf(largest, fmaxf(fmaxf(fabsf(x.x), fabsf(x.y)), fmaxf(fabsf(x.z), fabsf(x.w))));
      }
      scale = ScaleBy(HalfExponent(LargestOfRow(largest)));
    }
#pragma unroll
    for (int s = 0; s < Traits::kSteps; ++s) {
      const float4 x = FloatsOf(query, row, s);
      Split(x.x * scale, x.y * scale, s, 0);
      Split(x.z * scale, x.w * scale, s, 1);
    }
  }
  __device__ void Split(float a, float b, int step, int pair) {
    parts[0][step][pair] = PackPair<Traits>(a, b);
    TakePair<Traits>(parts[0][step][pair], a, b);
    parts[kHeld - 1][step][pair] = PackPair<Traits>(a, b);
    if constexpr (Traits::kParts > 2) {
      TakePair<Traits>(parts[1][step][pair], a, b);
      ptx::StoreShared(SharedAt(step) + 4 * pair, PackPair<Traits>(a, b));
    }
  }
};

}  // namespace pagefuse::cuda
