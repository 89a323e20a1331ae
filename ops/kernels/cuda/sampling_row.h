// SPDX-License-Identifier: Apache-2.0
// A row of logits that a cluster of blocks shares: keys of each block's part, from shared memory where that holds it. Device
// code alone.
#pragma once

#include <cstdint>

#include "pagefuse/ops/kernels/cuda/cluster_select.h"

namespace pagefuse::cuda {

inline constexpr int kRowThreads = 1024, kRowWarps = kRowThreads / kWarp;
static_assert(kRowWarps == kWarp);

inline constexpr uint32_t kInfinityKey = 0xFF800000u, kMinusInfinityKey = 0x007FFFFFu;

// Larger for larger logits, and not 0; those of either zero are equal, and NaN is above all.
__device__ inline uint32_t KeyOfLogit(float logit) {
  const uint32_t bits = __float_as_uint(__fadd_rn(logit, 0.0f));
  const uint32_t key = bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
  return logit == logit ? key : UINT32_MAX;
}
__device__ inline float LogitOfKey(uint32_t key) {
  return __uint_as_float(key >> 31 != 0 ? key & 0x7FFFFFFFu : ~key);
}

// Keys of pieces from `first` on, each that of the next thread behind the one before: of what is not there 0.
template <int kBatch>
__device__ void ReadPieces(const RowPart& part, uint32_t first, uint4 (&keys)[kBatch]) {
  float4 pieces[kBatch] = {};
  bool whole[kBatch];
#pragma unroll
  for (int j = 0; j < kBatch; ++j) {
    const uint32_t piece = first + j * kRowThreads, index = part.IndexOf(piece);
    whole[j] = piece < part.end && index < part.count && part.count - index >= 4;
    if (whole[j]) pieces[j] = *reinterpret_cast<const float4*>(part.from + index);
  }
#pragma unroll
  for (int j = 0; j < kBatch; ++j) {
    const uint32_t piece = first + j * kRowThreads, index = part.IndexOf(piece);
    const auto key = [&](uint32_t i) { return i < part.count ? KeyOfLogit(part.from[i]) : 0; };
    const float4& x = pieces[j];
    keys[j] = {0, 0, 0, 0};
    if (whole[j]) {
      keys[j] = {KeyOfLogit(x.x), KeyOfLogit(x.y), KeyOfLogit(x.z), KeyOfLogit(x.w)};
    } else if (piece < part.end) {
      keys[j] = {key(index), key(index + 1), key(index + 2), key(index + 3)};
    }
  }
}

// The same from shared memory, where that holds the part.
template <int kBatch>
__device__ void KeysOf(const RowPart& part, uint32_t first, uint4 (&keys)[kBatch]) {
  if (part.keys == nullptr) return ReadPieces(part, first, keys);
#pragma unroll
  for (int j = 0; j < kBatch; ++j) {
    const uint32_t piece = first + j * kRowThreads;
    keys[j] = piece < part.end ? part.keys[piece - part.begin] : uint4{0, 0, 0, 0};
  }
}

// f(piece, its keys) of the block's part, some of them behind it, with keys of 0: `kBatch` are on their way at a time.
template <int kBatch, class F>
__device__ void ForPieces(const RowPart& part, const F& f) {
  for (uint32_t first = part.begin + threadIdx.x; first < part.end; first += kBatch * kRowThreads) {
    uint4 keys[kBatch];
    KeysOf(part, first, keys);
#pragma unroll
    for (int j = 0; j < kBatch; ++j) f(first + j * kRowThreads, keys[j]);
  }
}

// f(key, index) of the block's part, some of key 0.
template <class F>
__device__ void ForElements(const RowPart& part, const F& f) {
  ForPieces<2>(part, [&](uint32_t piece, const uint4& keys) {
    const uint32_t index = part.IndexOf(piece);
    f(keys.x, index), f(keys.y, index + 1), f(keys.z, index + 2), f(keys.w, index + 3);
  });
}

}  // namespace pagefuse::cuda
