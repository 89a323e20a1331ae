// SPDX-License-Identifier: Apache-2.0
// Codes of nbits.h as floats where lanes stand for rows of W, transposed word by word and left where they
// lie in it: code i of a word of 32 bits counts 2^(bits * i), which x's elements are divided by. The last
// one would be the sign and counts 1. For foreach_target.
#if defined(PAGEFUSE_KERNELS_LINALG_NBITS_CODES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAGEFUSE_KERNELS_LINALG_NBITS_CODES_INL_H_
#undef PAGEFUSE_KERNELS_LINALG_NBITS_CODES_INL_H_
#else
#define PAGEFUSE_KERNELS_LINALG_NBITS_CODES_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"

#include "pagefuse/ops/kernels/linalg/ask_ahead.h"
#include "pagefuse/ops/kernels/linalg/nbits_f32_hwy.h"
#include "pagefuse/ops/kernels/linalg/register_tile-inl.h"
#include "pagefuse/ops/kernels/linalg/transposed_f32-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {

using D32 = hn::RebindToSigned<D>;
using V32 = hn::Vec<D32>;

template <int kBits>
constexpr int64_t kPerWord = 32 / kBits;

// kVecs * kLanes rows of W from n on; those behind the last are the last one.
template <int kVecs>
struct WeightRows {
  static constexpr int64_t kCount = kVecs * kLanes;

  HWY_INLINE WeightRows(const NBitsWeight& w, int64_t n, int64_t n_end)
      : first(n), row_bytes(w.row_bytes) {
    for (int64_t c = 0; c < kCount; ++c) {
      const int64_t row = std::min(n + c, n_end - 1);
      codes[c] = w.codes + row * w.row_bytes;
      scales[c] = w.scales + row * w.blocks();
    }
  }
  int64_t Row(int64_t c, int64_t n_end) const { return std::min(first + c, n_end - 1); }

  int64_t first, row_bytes;
  const uint8_t* codes[kCount];
  const float* scales[kCount];
};

// Code kCode of each word, times what it counts.
template <int kBits, int kCode>
HWY_INLINE V CodeFloats(V32 words) {
  const D32 d32;
  if constexpr (kCode == kPerWord<kBits> - 1) {
    const hn::RebindToUnsigned<D> du32;
    const auto code = hn::ShiftRight<32 - kBits>(hn::BitCast(du32, words));
    return hn::ConvertTo(D(), hn::BitCast(d32, code));
  } else {
    return hn::ConvertTo(D(), hn::And(words, hn::Set(d32, ((1 << kBits) - 1) << (kBits * kCode))));
  }
}

// take(i + kCode, codes), and so on, for the words' codes, of which there are `count`.
template <int kBits, bool kWhole, int kCode = 0, int kRuns, int kVecs, class Take>
HWY_INLINE void TakeWord(const V32 (&words)[kRuns][kVecs], int64_t i, int64_t count,
                         const Take& take) {
  if constexpr (kCode < kPerWord<kBits>) {
    if (!kWhole && kCode >= count) return;
    V codes[kRuns][kVecs];
    for (int q = 0; q < kRuns; ++q) {
      for (int v = 0; v < kVecs; ++v) codes[q][v] = CodeFloats<kBits, kCode>(words[q][v]);
    }
    take(i + kCode, codes);
    TakeWord<kBits, kWhole, kCode + 1>(words, i, count, take);
  }
}

// A word of each row, or its first `bytes`.
template <int kVecs>
HWY_INLINE void LoadWords(const WeightRows<kVecs>& w, int64_t at, int64_t bytes,
                          V32 (&words)[kVecs]) {
  for (int v = 0; v < kVecs; ++v) {
    HWY_ALIGN int32_t lanes[kLanes] = {};
    for (int64_t c = 0; c < kLanes; ++c) {
      std::memcpy(lanes + c, w.codes[v * kLanes + c] + at, static_cast<size_t>(bytes));
    }
    words[v] = hn::Load(D32(), lanes);
  }
}

// Four words of each row, of run q.
template <int kRuns, int kVecs>
HWY_INLINE void LoadFourWords(const WeightRows<kVecs>& w, int64_t at, int q,
                              V32 (&words)[4][kRuns][kVecs]) {
  const auto load = [&](auto d4, int64_t c) HWY_ATTR {
    const hn::Repartition<uint8_t, decltype(d4)> bytes;
    return hn::BitCast(d4, hn::LoadU(bytes, w.codes[c] + at));
  };
  for (int v = 0; v < kVecs; ++v) {
    V32 rows[4];
    for (int64_t j = 0; j < 4; ++j) rows[j] = LoadFoursOf(D32(), load, v * kLanes + j);
    TransposePieces(D32(), rows);
    for (int64_t j = 0; j < 4; ++j) words[j][q][v] = rows[j];
  }
}

// take(i, codes) for elements [i, count) of a run, fewer than four words have.
template <int kBits, int kVecs, class Take>
HWY_INLINE void TakeRest(const WeightRows<kVecs>& w, int64_t begin, int64_t i, int64_t count,
                         const Take& take) {
  constexpr int64_t kPer = kPerWord<kBits>, kFourBytes = 16;
  if (i == count) return;
  const int64_t at = begin + i * kBits / 8;
  // Four words that lie within the row, these among them, if there are.
  const int64_t from = std::min(at, w.row_bytes - kFourBytes);
  V32 words[4][1][kVecs];
  const bool fours = from >= 0 && (at - from) % 4 == 0;
  if (fours) LoadFourWords(w, from, 0, words);
  for (int64_t j = fours ? (at - from) / 4 : 0; i < count; ++j, i += kPer) {
    const int64_t left = std::min(kPer, count - i);
    V32(&word)[1][kVecs] = words[fours ? j : 0];
    if (!fours) LoadWords(w, begin + i * kBits / 8, (left * kBits + 7) / 8, word[0]);
    if (left == kPer) {
      TakeWord<kBits, true>(word, i, kPer, take);
    } else {
      TakeWord<kBits, false>(word, i, left, take);
    }
  }
}

// True if a run is whole fours of words.
template <int kBits>
bool IsWhole(int64_t count) {
  return count % (4 * kPerWord<kBits>) == 0;
}

// Asks for as much of the rows that follow these as a word of each of kRuns runs is, front to back.
// `at`: how many bytes of those have been asked for. Little at a time, since memory that has much
// to bring lets reads wait.
template <int kRuns, int kVecs>
HWY_INLINE void AskForWord(const WeightRows<kVecs>& w, int64_t at) {
  constexpr int64_t kLine = 64, kBytes = WeightRows<kVecs>::kCount * kRuns * 4;
  const uint8_t* next = w.codes[0] + WeightRows<kVecs>::kCount * w.row_bytes + at;
  for (int64_t i = 0; i < kBytes; i += kLine) AskAhead(next + i);
}

// take(i, codes) for elements [0, run.count) of kRuns runs that follow each other, in their order: lane
// c of codes[q][v] is of the q-th and of row v * kLanes + c. Several are of one size, and whole.
template <int kBits, int kRuns, int kVecs, class Take>
HWY_INLINE void ForCodes(const WeightRows<kVecs>& w, const NBitsCut::Run& run, const Take& take) {
  constexpr int64_t kPer = kPerWord<kBits>;
  const int64_t begin = run.begin * kBits / 8, run_bytes = run.count * kBits / 8;
  int64_t i = 0;
  for (; i + 4 * kPer <= run.count; i += 4 * kPer) {
    V32 words[4][kRuns][kVecs];
    for (int q = 0; q < kRuns; ++q) {
      LoadFourWords(w, begin + q * run_bytes + i * kBits / 8, q, words);
    }
    for (int64_t j = 0; j < 4; ++j) {
      const int64_t at = i + j * kPer;
      AskForWord<kRuns>(w, WeightRows<kVecs>::kCount * (begin + kRuns * at * kBits / 8));
      TakeWord<kBits, true>(words[j], at, kPer, take);
    }
  }
  if constexpr (kRuns == 1) TakeRest<kBits>(w, begin, i, run.count, take);
}

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#endif  // toggle
