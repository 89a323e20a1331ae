// SPDX-License-Identifier: Apache-2.0
// The views of TurboQuant slots (row_codec-inl.h), and their codecs of 16-bit integers (words-inl.h).
// Include inside a file that hwy/foreach_target.h recompiles.
//
// Centroids become integers under one unit; their squares leave them 13.5 bits.
#if defined(PAGEFUSE_KERNELS_FORMATS_TURBOQUANT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAGEFUSE_KERNELS_FORMATS_TURBOQUANT_INL_H_
#undef PAGEFUSE_KERNELS_FORMATS_TURBOQUANT_INL_H_
#else
#define PAGEFUSE_KERNELS_FORMATS_TURBOQUANT_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"

#include "pagefuse/ops/kernels/formats/e4m3_words-inl.h"
#include "pagefuse/ops/kernels/formats/turboquant_codec-inl.h"
#include "pagefuse/ops/kernels/formats/words-inl.h"
#include "pagefuse/ops/kernels/numeric/byte_tables-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if PF_MULTIPLIES_WORDS

using ByteTag = hn::Repartition<uint8_t, WordTag>;
using WordBytes = hn::Vec<ByteTag>;

// Where pairs of 3-bit codes are, six bits each: the two bytes of each, counted from the first of
// all or of each twelve; where it begins in them; and the factor that moves it to their top.
struct PairPlaces {
  alignas(64) uint8_t bytes[64] = {};
  alignas(64) uint8_t bytes_of_twelve[64] = {};
  alignas(64) uint16_t starts[32] = {};
  alignas(64) int16_t factors[32] = {};

  constexpr PairPlaces() {
    for (int i = 0; i < 32; ++i) {
      for (int k = 0; k < 2; ++k) {
        bytes[2 * i + k] = static_cast<uint8_t>(i * 6 / 8 + k);
        bytes_of_twelve[2 * i + k] = static_cast<uint8_t>(i % 16 * 6 / 8 + k);
      }
      starts[i] = static_cast<uint16_t>(i * 6 % 8);
      factors[i] = static_cast<int16_t>(1 << (10 - starts[i]));
    }
  }
};
inline constexpr PairPlaces kPairPlaces;

// The 16 bytes at p in each block of a vector.
HWY_INLINE WordBytes RepeatBlock(const uint8_t* HWY_RESTRICT p) {
  const __m128i block = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
#if HWY_TARGET == HWY_AVX2
  return WordBytes{_mm256_broadcastsi128_si256(block)};
#else
  return WordBytes{_mm512_broadcast_i32x4(block)};
#endif
}

// kWords pairs of codes; see CodePairs. Reads up to four bytes behind them.
template <int bits>
HWY_INLINE Words LoadCodePairs(const uint8_t* HWY_RESTRICT p) {
  if constexpr (bits == 4) {
    return BytesAsWords(p);
  } else {
#if PF_HAS_BYTE_TABLES
    const __m512i bytes = _mm512_castsi256_si512(_mm256_maskz_loadu_epi32(0x3F, p));  // 24
    const __m512i words = _mm512_permutexvar_epi8(_mm512_load_si512(kPairPlaces.bytes), bytes);
    return Words{_mm512_srlv_epi16(words, _mm512_load_si512(kPairPlaces.starts))};
#else
    const hn::RebindToUnsigned<WordTag> du16;
    WordBytes blocks = RepeatBlock(p);
#if HWY_TARGET == HWY_AVX3
    blocks = hn::ConcatUpperLower(ByteTag(), RepeatBlock(p + 12), blocks);
#endif
    const auto words =
        hn::TableLookupBytes(blocks, hn::Load(ByteTag(), kPairPlaces.bytes_of_twelve));
    const auto top =
        hn::Mul(hn::BitCast(WordTag(), words), hn::Load(WordTag(), kPairPlaces.factors));
    return hn::BitCast(WordTag(), hn::ShiftRight<10>(hn::BitCast(du16, top)));
#endif
  }
}

// Keys of centroids. As TurboKeyCodec, but for the loop.
template <int bits>
class TurboKeyWords : public TurboKeyCodec<bits> {
  static constexpr size_t kCodes = size_t{1} << bits;

 public:
  using Row = typename TurboKeyCodec<bits>::Row;
  using Word = int16_t;

  HWY_INLINE TurboKeyWords(const float* centroids, bool correct)
      : TurboKeyCodec<bits>(centroids, correct) {
    HWY_ALIGN float floats[2 * kCodes] = {};
    HWY_ALIGN int16_t integers[2 * kCodes];
    std::copy_n(centroids, kCodes, floats);
    unit_ = StoreIntegers(floats, 2 * kCodes, kMostOfSquare, 0, integers);
    SetTables(integers);
  }

  static constexpr float largest_word() { return kMostOfSquare; }
  float word_unit() const { return unit_; }

#if HWY_TARGET == HWY_AVX2

  static constexpr size_t WordElement(size_t i) {
    if (bits == 3) return CodePairs<3>::WordElement(i);
    return i / kWords * kWords + i % (kWords / 2) * 2 + i / (kWords / 2) % 2;
  }

  HWY_INLINE void LoadWords(const Row& row, size_t d, Words (&to)[2]) const {
    const uint8_t* HWY_RESTRICT p = row.data + d * bits / 8;
    if constexpr (bits == 4) {
      // The even codes in the lower half, the odd ones in the upper.
      const hn::RebindToUnsigned<SumTag> du32;
      alignas(32) static constexpr uint32_t kShifts[8] = {0, 0, 0, 0, 4, 4, 4, 4};
      const auto bytes = hn::BitCast(du32, RepeatBlock(p)) >> hn::Load(du32, kShifts);
      const auto codes = hn::And(hn::BitCast(ByteTag(), bytes), hn::Set(ByteTag(), 15));
      const auto low = hn::TableLookupBytes(low_, codes);
      const auto high = hn::TableLookupBytes(high_, codes);
      to[0] = hn::BitCast(WordTag(), hn::InterleaveLower(ByteTag(), low, high));
      to[1] = hn::BitCast(WordTag(), hn::InterleaveUpper(ByteTag(), low, high));
    } else {
      // A pair in both bytes of a word: one looks up the low byte of a centroid, one the high byte.
      alignas(16) static constexpr uint8_t kTwice[16] = {0, 0, 2,  2,  4,  4,  6,  6,
                                                         8, 8, 10, 10, 12, 12, 14, 14};
      const auto pairs = hn::BitCast(ByteTag(), LoadCodePairs<3>(p));
      const auto twice = hn::TableLookupBytes(pairs, RepeatBlock(kTwice));
      to[0] = Lookup(hn::BitCast(WordTag(), twice));
      to[1] = Lookup(hn::ShiftRight<3>(hn::BitCast(WordTag(), twice)));
    }
  }

 private:
  HWY_INLINE void SetTables(const int16_t* HWY_RESTRICT integers) {
    alignas(16) uint8_t low[16];
    alignas(16) uint8_t high[16];
    for (size_t i = 0; i < 16; ++i) {
      low[i] = static_cast<uint8_t>(integers[i % kCodes] & 0xFF);
      high[i] = static_cast<uint8_t>(integers[i % kCodes] >> 8 & 0xFF);
    }
    if (bits == 3) std::copy_n(high, kCodes, low + kCodes);
    low_ = RepeatBlock(low);
    high_ = RepeatBlock(high);
  }

  // Of a 3-bit code in both bytes of each word, with other bits above.
  HWY_INLINE Words Lookup(Words codes) const {
    const auto indices =
        hn::Or(hn::And(codes, hn::Set(WordTag(), 0x0707)), hn::Set(WordTag(), kCodes << 8));
    return hn::BitCast(WordTag(), hn::TableLookupBytes(low_, hn::BitCast(ByteTag(), indices)));
  }

  WordBytes low_;  // of 3-bit codes the high bytes too, behind the low ones
  WordBytes high_;

#else

  static constexpr size_t WordElement(size_t i) { return CodePairs<bits>::WordElement(i); }

  HWY_INLINE void LoadWords(const Row& row, size_t d, Words (&to)[2]) const {
    const Words pairs = LoadCodePairs<bits>(row.data + d * bits / 8);
    to[0] = Lookup(pairs);
    to[1] = Lookup(hn::ShiftRight<bits>(pairs));
  }

 private:
  HWY_INLINE void SetTables(const int16_t* HWY_RESTRICT integers) {
    HWY_ALIGN int16_t repeated[kWords];
    for (size_t i = 0; i < kWords; ++i) repeated[i] = integers[i % kCodes];
    table_ = hn::Load(WordTag(), repeated);
  }

  // The centroids of codes in the low bits, which repeat: the bits above do not matter.
  HWY_INLINE Words Lookup(Words codes) const {
    return Words{_mm512_permutexvar_epi16(codes.raw, table_.raw)};
  }

  Words table_;

#endif

  float unit_;
};

// As TurboValueCodec, but for the loop.
template <int bits>
struct TurboValueWords : TurboValueCodec<bits> {
  using Row = typename TurboValueCodec<bits>::Row;
  using Word = int16_t;
  static constexpr size_t PairElement(size_t i) { return CodePairs<bits>::PairElement(i); }

  // Implicit constructors are compiled for no SIMD target.
  HWY_INLINE TurboValueWords() {}

  HWY_INLINE void LoadPairs(const Row& a, const Row& b, size_t d, Words (&to)[4]) const {
    CodePairs<bits>::Load(LoadCodePairs<bits>(a.data + d * bits / 8),
                          LoadCodePairs<bits>(b.data + d * bits / 8), to);
  }
};

#endif  // PF_MULTIPLIES_WORDS

// Keys are codes of centroids in the rotated space, or with 8 bits of e4m3fn.
template <int key_bits, int value_bits>
struct TurboQuantViews {
  static constexpr bool kCentroids = key_bits != 8;
  using PlainKeys = PlainCodec<Float8E4M3FN>;

  const TurboQuantCache& cache;

  HWY_INLINE auto Keys() const {
    if constexpr (!kCentroids) {
      return PlainKeys();
    } else {
      const auto size = static_cast<size_t>(cache.format.head_size);
      return TurboKeyRowCodec<key_bits>(cache.tables.centroids, cache.norm_correction, size);
    }
  }
  HWY_INLINE auto DecodeKeys() const {
    if constexpr (!kCentroids) {
      return PlainKeys();
    } else {
      return TurboKeyCodec<key_bits>(cache.tables.centroids, cache.norm_correction);
    }
  }
  static HWY_INLINE auto Values() { return TurboValueRowCodec<value_bits>(); }
  static HWY_INLINE auto DecodeValues() { return TurboValueCodec<value_bits>(); }

#if PF_MULTIPLIES_WORDS
  HWY_INLINE auto KeyWords() const requires(kCentroids || PF_HAS_BYTE_TABLES != 0) {
    if constexpr (!kCentroids) {
      return E4M3Pairs<PlainKeys>();
    } else {
      return TurboKeyWords<key_bits>(cache.tables.centroids, cache.norm_correction);
    }
  }
  static HWY_INLINE auto ValueWords() { return TurboValueWords<value_bits>(); }
#endif
};

// Calls f(views) with the views of the cache's slots.
template <class F>
HWY_INLINE void ForFormat(const TurboQuantCache& cache, const F& f) {
  const auto with_keys = [&]<int key_bits>() HWY_ATTR {
    if (cache.format.value_bits == 3) return f(TurboQuantViews<key_bits, 3>{cache});
    f(TurboQuantViews<key_bits, 4>{cache});
  };
  if (cache.format.key_bits == 3) return with_keys.template operator()<3>();
  if (cache.format.key_bits == 4) return with_keys.template operator()<4>();
  with_keys.template operator()<8>();
}

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#endif  // toggle
