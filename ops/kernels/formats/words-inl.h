// SPDX-License-Identifier: Apache-2.0
// Rows of caches as vectors of 16-bit words, integers or bfloat16, which are multiplied two to a
// lane. Include inside a file that hwy/foreach_target.h recompiles. PF_MULTIPLIES_WORDS is 0 where
// there are none.
//
// A codec of words has, beside Row and Open,
//   Word                     int16_t or Bfloat16
//   largest_word()           no integer has a larger magnitude
//   word_unit()              what 1 means
//   LoadWords(row, d, to)    words of elements [d, d + kWordStep); integers of at most
//                            kMostOfSquare where rows are divided by their lengths
//   WordElement(i)           which of these word i is
// and one of values
//   LoadPairs(a, b, d, to)   of elements [d, d + kWordStep), words of two rows side by side in a
//                            lane; integers are below 2^10
//   PairElement(i)           which of these pair i is
#if defined(PAGEFUSE_KERNELS_FORMATS_WORDS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAGEFUSE_KERNELS_FORMATS_WORDS_INL_H_
#undef PAGEFUSE_KERNELS_FORMATS_WORDS_INL_H_
#else
#define PAGEFUSE_KERNELS_FORMATS_WORDS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#undef PF_MULTIPLIES_WORDS
#if HWY_TARGET == HWY_AVX2 || (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3)
#define PF_MULTIPLIES_WORDS 1

using WordTag = hn::ScalableTag<int16_t>;
using SumTag = hn::ScalableTag<int32_t>;
using FloatTag = hn::ScalableTag<float>;
using Words = hn::Vec<WordTag>;
constexpr size_t kWords = hn::MaxLanes(WordTag());
constexpr size_t kSumLanes = hn::MaxLanes(SumTag());
// Elements of a row that the loops take at a time: two vectors of words.
constexpr size_t kWordStep = 2 * kWords;

constexpr float kMostOfWord = 0x7FFF;
// Sixteen squares of it, those of a run in a lane, are below 2^31.
constexpr float kMostOfSquare = 0x2D41;

// Writes x[0, n) / unit as integers of at most `largest` and returns the unit, `least_unit` or
// more: NaN if there is a number that is none, or infinity; 0 if all are 0. n is a multiple of a
// vector; `to` may be x.
HWY_INLINE float StoreIntegers(const float* x, size_t n, float largest, float least_unit,
                               int16_t* to) {
  const hn::ScalableTag<float> df;
  const hn::RebindToSigned<decltype(df)> di;
  const hn::Rebind<int16_t, decltype(df)> d16;
  auto most = hn::Zero(df);
  auto sum = hn::Zero(df);  // Max may drop a NaN
  for (size_t i = 0; i < n; i += hn::Lanes(df)) {
    const auto magnitude = hn::Abs(hn::LoadU(df, x + i));
    most = hn::Max(most, magnitude);
    sum = hn::Add(sum, magnitude);
  }
  const float unit = std::max(hn::GetLane(hn::MaxOfLanes(df, most)) / largest, least_unit);
  const bool usual = std::isfinite(hn::GetLane(hn::SumOfLanes(df, sum)));
  // Smaller units have no reciprocal; what is a multiple of them does not count.
  const float factor = usual && unit >= std::numeric_limits<float>::min() ? 1 / unit : 0;
  for (size_t i = 0; i < n; i += hn::Lanes(df)) {
    const auto v = hn::IfThenZeroElse(hn::IsNaN(hn::LoadU(df, x + i)), hn::LoadU(df, x + i));
    // Added to 1.5 * 2^23 a number of that size leaves its nearest integer in the low bits.
    const auto rounder = hn::Set(df, 0x1.8p23f);
    const auto rounded = hn::BitCast(di, hn::MulAdd(v, hn::Set(df, factor), rounder));
    hn::StoreU(hn::DemoteTo(d16, hn::Sub(rounded, hn::BitCast(di, rounder))), d16, to + i);
  }
  return usual ? unit : std::numeric_limits<float>::quiet_NaN();
}

// The words of two vectors side by side, and which word lane `i` of the first or second has.
HWY_INLINE void Interleave(Words a, Words b, Words& first, Words& second) {
  first = hn::InterleaveLower(WordTag(), a, b);
  second = hn::InterleaveUpper(WordTag(), a, b);
}
constexpr size_t InterleavedWord(size_t vector, size_t i) { return i / 4 * 8 + vector * 4 + i % 4; }

// LoadPairs of a codec's LoadWords, and which word pair `i` is.
template <class Codec, class Row>
HWY_INLINE void InterleaveRows(const Codec& codec, const Row& a, const Row& b, size_t d,
                               Words (&to)[4]) {
  Words first[2];
  Words second[2];
  codec.LoadWords(a, d, first);
  codec.LoadWords(b, d, second);
  for (size_t i = 0; i < 2; ++i) Interleave(first[i], second[i], to[2 * i], to[2 * i + 1]);
}
constexpr size_t InterleavedRowWord(size_t i) {
  return i / kWords * kWords + InterleavedWord(i / kSumLanes % 2, i % kSumLanes);
}

// Of words that hold the codes of two elements, the first one's lowest; above those of less than
// four bits anything, above others nothing.
template <int bits>
struct CodePairs {
  static HWY_INLINE Words First(Words pairs) {
    return hn::And(pairs, hn::Set(WordTag(), (1 << bits) - 1));
  }
  static HWY_INLINE Words Second(Words pairs) {
    const Words second = hn::ShiftRight<bits>(pairs);
    if constexpr (bits == 4) return second;
    return First(second);
  }

  // First and Second of kWords pairs.
  static constexpr size_t WordElement(size_t i) { return i % kWords * 2 + i / kWords; }

  // LoadPairs.
  static HWY_INLINE void Load(Words a, Words b, Words (&to)[4]) {
    Words both[2];
    Interleave(a, b, both[0], both[1]);
    for (size_t i = 0; i < 2; ++i) {
      to[i] = First(both[i]);
      to[2 + i] = Second(both[i]);
    }
  }
  static constexpr size_t PairElement(size_t i) {
    return InterleavedWord(i / kSumLanes % 2, i % kSumLanes) * 2 + i / kWords;
  }
};

// Bytes p[0, kWords) as words.
HWY_INLINE Words BytesAsWords(const uint8_t* HWY_RESTRICT p) {
  return hn::PromoteTo(WordTag(), hn::LoadU(hn::Rebind<uint8_t, WordTag>(), p));
}

#else
#define PF_MULTIPLIES_WORDS 0
#endif

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#endif  // toggle
