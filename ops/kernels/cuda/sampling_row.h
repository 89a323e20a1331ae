// SPDX-License-Identifier: Apache-2.0
// A row of logits that a cluster of blocks shares: keys of each block's part, from shared memory where that holds it. Device
// code alone.
#pragma once

#include <cstdint>
#include <type_traits>

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
__device__ void KeysOf(const RowPart& part, uint32_t first, uint4 (&keys)[kBatch]) {
  ReadPieces<KeyOfLogit>(part, first, std::integral_constant<uint32_t, kRowThreads>(), keys);
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
