// SPDX-License-Identifier: Apache-2.0
// Sums of tiles by AVX512-BF16 dot products, in registers. For files that use its intrinsics; all
// of it needs Bf16Unit::kAvx512 or more.
#pragma once

#if defined(__x86_64__)

#include <cstdint>
#include <cstring>

#include "pagefuse/ops/kernels/linalg/bf16_tiles.h"
#include "pagefuse/ops/kernels/linalg/x86_intrinsics.h"

namespace pagefuse {

#define PF_AVX512_BF16 __attribute__((target("avx512f,avx512bw,avx512bf16")))
// A step of an inner loop, whose sums have to stay in registers.
#define PF_AVX512_BF16_INLINE PF_AVX512_BF16 __attribute__((always_inline)) inline

// One pair of k, the first of which is at `words`, in all places.
PF_AVX512_BF16_INLINE __m512bh Pair(const uint16_t* words) {
  int32_t pair;
  std::memcpy(&pair, words, sizeof(pair));
  return (__m512bh)_mm512_set1_epi32(pair);
}

// sums += the products of one pair of k: rows `a`, kTileDepth words apart, times the columns `b`
// of kBlocks streams, b_stride words apart.
template <int kRows, int kBlocks>
PF_AVX512_BF16_INLINE void AddPairs(const uint16_t* a, const uint16_t* b, int64_t b_stride,
                                    __m512 (&sums)[kBlocks][kRows]) {
  __m512bh columns[kBlocks];
#pragma GCC unroll 4
  for (int n = 0; n < kBlocks; ++n) columns[n] = (__m512bh)_mm512_loadu_si512(b + n * b_stride);
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    const __m512bh row = Pair(a + r * kTileDepth);
#pragma GCC unroll 4
    for (int n = 0; n < kBlocks; ++n) sums[n][r] = _mm512_dpbf16_ps(sums[n][r], columns[n], row);
  }
}

// c[block][r][16] (+)= rows [0, kRows) of A tiles times kBlocks streams of B tiles, b_stride words
// apart; C tiles are c_stride floats apart. A row's sum takes pair after pair of k, whatever kRows
// and kBlocks are, so that its bits do not depend on them. More blocks load fewer operands for each
// product.
struct DotOperands {
  const uint16_t* a;
  const uint16_t* b;
  int64_t b_stride;
  int64_t k_tiles;
  bool accumulate;
  float* c;
  int64_t c_stride = kTileFloats;
  ComingRows coming = {};
};
template <int kRows, int kBlocks>
PF_AVX512_BF16 void DotTiles(const DotOperands& in) {
  __m512 sums[kBlocks][kRows];
#pragma GCC unroll 4
  for (int n = 0; n < kBlocks; ++n) {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const float* c = in.c + n * in.c_stride + r * kTileColumns;
      sums[n][r] = in.accumulate ? _mm512_load_ps(c) : _mm512_setzero_ps();
    }
  }
  const uint16_t* a = in.a;
  const uint16_t* b = in.b;
  for (int64_t t = 0; t < in.k_tiles; ++t, a += kTileWords) {
    in.coming.Ask(t);
    for (int64_t k = 0; k < kTileDepth; k += 2, b += 2 * kTileColumns) {
      AddPairs(a + k, b, in.b_stride, sums);
    }
  }
#pragma GCC unroll 4
  for (int n = 0; n < kBlocks; ++n) {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      _mm512_store_ps(in.c + n * in.c_stride + r * kTileColumns, sums[n][r]);
    }
  }
}

}  // namespace pagefuse

#endif  // __x86_64__
