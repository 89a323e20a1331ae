// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/linalg/bf16_rows.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/kernels/linalg/bf16_dots.h"

namespace pagefuse {

#if defined(__x86_64__)

namespace {

// As many sums as registers hold, beside the operands.
constexpr int kSums = 16;

PF_AVX512_BF16 inline __m512bh Quad(const uint16_t* words) {
  int64_t quad;
  std::memcpy(&quad, words, sizeof(quad));
  return (__m512bh)_mm512_set1_epi64(quad);
}

template <int kCount>
PF_AVX512_BF16 inline void BeginSums(const float* c, bool accumulate, __m512 (&sums)[kCount]) {
#pragma GCC unroll 16
  for (int r = 0; r < kCount; ++r) {
    sums[r] = accumulate ? _mm512_load_ps(c + r * kTileColumns) : _mm512_setzero_ps();
  }
}

template <int kCount>
PF_AVX512_BF16 inline void EndSums(const __m512 (&sums)[kCount], float* c) {
#pragma GCC unroll 16
  for (int r = 0; r < kCount; ++r) _mm512_store_ps(c + r * kTileColumns, sums[r]);
}

// low, high += the products of quads k of the rows and the two vectors of columns at q.
template <int kCount>
PF_AVX512_BF16_INLINE void AddQuads(const uint16_t* q, const uint16_t* const (&rows)[kCount],
                                    int64_t k, __m512 (&low)[kCount], __m512 (&high)[kCount]) {
  const auto low_columns = (__m512bh)_mm512_load_si512(q);
  const auto high_columns = (__m512bh)_mm512_load_si512(q + 32);
#pragma GCC unroll 8
  for (int r = 0; r < kCount; ++r) {
    const __m512bh row = Quad(rows[r] + k);
    low[r] = _mm512_dpbf16_ps(low[r], low_columns, row);
    high[r] = _mm512_dpbf16_ps(high[r], high_columns, row);
  }
}

// low, high += the products of pairs `a`, kTileDepth words apart, and 32 columns of two rows.
template <int kCount>
PF_AVX512_BF16_INLINE void AddRowPairs(const uint16_t* a, const uint16_t* even_row,
                                       const uint16_t* odd_row, __m512 (&low)[kCount],
                                       __m512 (&high)[kCount]) {
  const __m512i even = _mm512_loadu_si512(even_row);
  const __m512i odd = _mm512_loadu_si512(odd_row);
  const auto low_columns = (__m512bh)_mm512_unpacklo_epi16(even, odd);
  const auto high_columns = (__m512bh)_mm512_unpackhi_epi16(even, odd);
#pragma GCC unroll 8
  for (int r = 0; r < kCount; ++r) {
    const __m512bh weights = Pair(a + r * kTileDepth);
    low[r] = _mm512_dpbf16_ps(low[r], low_columns, weights);
    high[r] = _mm512_dpbf16_ps(high[r], high_columns, weights);
  }
}

}  // namespace

PF_AVX512_BF16 void MultiplyRowsByQuads(const RowsByQuads& in) {
  constexpr int kRows = kSums / 2;
  // Of two vectors of 8 columns by 2 sums, the first and the second sums.
  const __m512i kFirst =
      _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i kSecond = _mm512_add_epi32(kFirst, _mm512_set1_epi32(1));
  for (int64_t first = 0; first < kTileRows; first += kRows) {
    const ComingRows coming = in.coming.Part(first / kRows, kTileRows / kRows);
    __m512 low[kRows], high[kRows];
    const uint16_t* rows[kRows];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      low[r] = high[r] = _mm512_setzero_ps();
      rows[r] = in.rows[first + r];
    }
    const uint16_t* q = in.q;
    for (int64_t t = 0; t < in.k_tiles; ++t) {
      coming.Ask(t);
      for (int64_t k = t * kTileDepth; k < (t + 1) * kTileDepth; k += kQuad) {
        AddQuads(q, rows, k, low, high);
        q += kQuad * kTileColumns;
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      float* c = in.c + (first + r) * kTileColumns;
      __m512 sum = _mm512_add_ps(_mm512_permutex2var_ps(low[r], kFirst, high[r]),
                                 _mm512_permutex2var_ps(low[r], kSecond, high[r]));
      if (in.accumulate) sum = _mm512_add_ps(_mm512_load_ps(c), sum);
      _mm512_store_ps(c, sum);
    }
  }
}

PF_AVX512_BF16 void MultiplyTilesByRows(const TilesByRows& in) {
  constexpr int kRows = kSums / 2;
  for (int64_t first = 0; first < in.num_a_rows; first += kRows) {
    __m512 low[kRows], high[kRows];
    BeginSums(in.c[0] + first * kTileColumns, in.accumulate, low);
    BeginSums(in.c[1] + first * kTileColumns, in.accumulate, high);
    const uint16_t* a = in.a + first * kTileDepth;
    const uint16_t* const* rows = in.rows;
    for (int64_t t = 0; t < in.k_tiles; ++t, a += kTileWords) {
      for (int64_t k = 0; k < kTileDepth; k += 2, rows += 2) {
        AddRowPairs(a + k, rows[0] + in.column, rows[1] + in.column, low, high);
      }
    }
    EndSums(low, in.c[0] + first * kTileColumns);
    EndSums(high, in.c[1] + first * kTileColumns);
  }
}

#else

void MultiplyRowsByQuads(const RowsByQuads&) { PF_CHECK(false); }
void MultiplyTilesByRows(const TilesByRows&) { PF_CHECK(false); }

#endif

}  // namespace pagefuse
