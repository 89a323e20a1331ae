// SPDX-License-Identifier: Apache-2.0
// bfloat16 words of e4m3fn codes by lookup. Include inside a file that hwy/foreach_target.h
// recompiles. On AVX-512 alone.
#if defined(PAGEFUSE_KERNELS_FORMATS_E4M3_WORDS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAGEFUSE_KERNELS_FORMATS_E4M3_WORDS_INL_H_
#undef PAGEFUSE_KERNELS_FORMATS_E4M3_WORDS_INL_H_
#else
#define PAGEFUSE_KERNELS_FORMATS_E4M3_WORDS_INL_H_
#endif

#include <bit>
#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"

#include "pagefuse/ops/kernels/formats/words-inl.h"
#include "pagefuse/ops/kernels/numeric/byte_tables-inl.h"
#include "pagefuse/ops/kernels/numeric/small_float.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Bits of x rounded to bfloat16, in the high half of each lane; the low half is anything.
template <class V>
HWY_INLINE hn::VFromD<hn::RebindToUnsigned<hn::DFromV<V>>> RoundedBits(V x) {
  const hn::RebindToUnsigned<hn::DFromV<V>> du;
  const auto bits = hn::BitCast(du, x);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
  return hn::Add(hn::Add(bits, odd), hn::Set(du, 0x7FFF));
}

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3

// The magnitudes of e4m3fn codes ee mmm, the two bits above being 0, as (8 + product) 2^power: as
// of normal numbers, or with the subnormal ones where ee is 0.
struct alignas(64) E4M3Products {
  uint16_t product[32] = {};
  uint16_t power[32] = {};  // where bfloat16 has its exponent, in wrapping arithmetic
  uint16_t word[32] = {};   // bfloat16 of the magnitude
  uint16_t not_zero[32] = {};

  constexpr explicit E4M3Products(bool subnormal) {
    for (int code = 0; code < 32; ++code) {
      const bool is_subnormal = subnormal && code < 8;
      int mantissa = is_subnormal ? code : 8 + code % 8;
      int exponent = is_subnormal ? -9 : code / 8 - 10;
      not_zero[code] = mantissa != 0 ? 1 : 0;
      for (; mantissa != 0 && mantissa < 8; mantissa *= 2) --exponent;
      constexpr int kExponentOfEight = 127 + 3;
      product[code] = static_cast<uint16_t>(mantissa % 8);
      power[code] = static_cast<uint16_t>(exponent * 128);
      word[code] = static_cast<uint16_t>((kExponentOfEight + exponent) * 128 + mantissa % 8 * 16);
    }
  }
};
inline constexpr E4M3Products kUsualProducts(/*subnormal=*/false);
inline constexpr E4M3Products kSmallProducts(/*subnormal=*/true);

// What a power of two adds to the word of a normal number.
inline uint16_t ExponentShift(float power) {
  const uint32_t exponent = (std::bit_cast<uint32_t>(power) >> 23) - 127;  // wraps
  return static_cast<uint16_t>(exponent << 7);
}

#if PF_HAS_BYTE_TABLES

// The words of all 128 magnitudes in two tables of bytes.
class E4M3WordBytes {
 public:
  static constexpr size_t kStep = 64;  // codes at a time
  using Words = hn::Vec<hn::Full512<uint16_t>>;

  // The words of magnitudes 0 to 31, of the next 32, and so on.
  HWY_INLINE E4M3WordBytes(Words w0, Words w1, Words w2, Words w3)
      : low_{LowBytes(w0, w1), LowBytes(w2, w3)}, high_{HighBytes(w0, w1), HighBytes(w2, w3)} {}

  // `size` codes, a multiple of kStep.
  HWY_INLINE void Decode(size_t size, const uint8_t* HWY_RESTRICT codes,
                         uint16_t* HWY_RESTRICT to) const {
    for (size_t i = 0; i < size; i += kStep) {
      const V code{_mm512_loadu_si512(codes + i)};
      const auto [first, second] = WordsOf(code);
      _mm512_storeu_si512(to + i, first.raw);
      _mm512_storeu_si512(to + i + kStep / 2, second.raw);
    }
  }

  // The same, with `shift` added to the words of codes that are neither 0 nor NaN.
  HWY_INLINE void DecodeShifted(uint16_t shift, size_t size, const uint8_t* HWY_RESTRICT codes,
                                uint16_t* HWY_RESTRICT to) const {
    const hn::Full512<uint8_t> d;
    const Words shifts = hn::Set(hn::Full512<uint16_t>(), shift);
    const auto store = [&](Words words, uint32_t normal, uint16_t* at) HWY_ATTR {
      _mm512_storeu_si512(at, _mm512_mask_add_epi16(words.raw, normal, words.raw, shifts.raw));
    };
    for (size_t i = 0; i < size; i += kStep) {
      const V code{_mm512_loadu_si512(codes + i)};
      const auto [first, second] = WordsOf(code);
      // Magnitudes 0 and 127 are 1 and 128 then: nothing but their outer bits.
      const V next = hn::Add(code, hn::Set(d, 1));
      const uint64_t normal = _mm512_test_epi8_mask(next.raw, hn::Set(d, 0x7E).raw);
      store(first, static_cast<uint32_t>(normal), to + i);
      store(second, static_cast<uint32_t>(normal >> 32), to + i + kStep / 2);
    }
  }

  struct TwoWords {
    Words first, second;
  };
  // Words of 64 codes: of the lower half of each 128 bits, and of the upper.
  HWY_INLINE TwoWords HalvesOf(ByteVec code) const {
    const hn::Full512<uint8_t> d;
    const ByteVec low = LookupBytes(low_[0], low_[1], code);
    const ByteVec high = hn::OrAnd(LookupBytes(high_[0], high_[1], code), code, hn::Set(d, 0x80));
    return {Words{_mm512_unpacklo_epi8(low.raw, high.raw)},
            Words{_mm512_unpackhi_epi8(low.raw, high.raw)}};
  }

 private:
  using V = ByteVec;

  // In the order of the codes.
  HWY_INLINE TwoWords WordsOf(V code) const {
    alignas(64) static constexpr uint64_t kHalves[8] = {0, 4, 1, 5, 2, 6, 3, 7};
    return HalvesOf(V{_mm512_permutexvar_epi64(_mm512_load_si512(kHalves), code.raw)});
  }

  V low_[2], high_[2];
};

#endif

// bfloat16(code * scale) of e4m3fn codes by lookup, for one scale. A code is s eeee mmm.
struct E4M3Words {
  static constexpr size_t kStep = 32;  // codes at a time
  using D = hn::Full512<uint16_t>;
  using V = hn::Vec<D>;

  // Words of the codes ee mmm: `small` where the two bits above are 0, which takes subnormal codes
  // in, `usual` for the others but without their upper exponent bits.
  V usual, small;

  // While no product leaves the normal numbers.
  static HWY_INLINE bool Takes(float scale) { return scale >= 0x1p-100f && scale <= 0x1p100f; }

  // Words of code 0 become 0, whatever they are.
  HWY_INLINE void SetZero() {
    const D d;
    small = hn::IfThenElseZero(hn::Ne(hn::Load(d, kSmallProducts.not_zero), hn::Zero(d)), small);
  }

  // A power of two: it is added to exponents.
  HWY_INLINE void SetPowerOfTwo(float scale) {
    const D d;
    const V shift = hn::Set(d, ExponentShift(scale));
    usual = hn::Add(hn::Load(d, kUsualProducts.word), shift);
    small = hn::Add(hn::Load(d, kSmallProducts.word), shift);
    SetZero();
  }

#if PF_HAS_BYTE_TABLES
  HWY_INLINE E4M3WordBytes Bytes() const {
    const D d;
    const auto above = [&](uint16_t exponents)
                           HWY_ATTR { return hn::Add(usual, hn::Set(d, exponents << 7)); };
    constexpr uint32_t kNanLane = uint32_t{1} << 31;
    const V last{_mm512_mask_mov_epi16(above(12).raw, kNanLane, hn::Set(d, 0x7FC0).raw)};
    return {small, above(4), above(8), last};
  }
#endif

  // `size` codes, a multiple of kStep.
  HWY_INLINE void Decode(size_t size, const uint8_t* HWY_RESTRICT codes,
                         uint16_t* HWY_RESTRICT to) const {
#if PF_HAS_BYTE_TABLES
    if (size % E4M3WordBytes::kStep == 0) return Bytes().Decode(size, codes, to);
#endif
    const D d;
    const hn::Full256<uint8_t> du8;
    const V above = hn::Set(d, 0x60);
    const V magnitude = hn::Set(d, 0x7F);
    const V sign = hn::Set(d, 0x8000);
    for (size_t i = 0; i < size; i += kStep) {
      const V code = hn::PromoteTo(d, hn::LoadU(du8, codes + i));
      const V high = hn::And(code, above);
      const V from_small = Lookup(small, code);
      V word = hn::Add(Lookup(usual, code), hn::ShiftLeft<4>(high));
      word = hn::IfThenElse(hn::Eq(high, hn::Zero(d)), from_small, word);
      const auto is_nan = hn::Eq(hn::And(code, magnitude), magnitude);
      word = hn::IfThenElse(is_nan, hn::Set(d, 0x7FC0), word);
      hn::StoreU(hn::OrAnd(word, hn::ShiftLeft<8>(code), sign), d, to + i);
    }
  }

  // Elements of a table by the low five bits of each lane.
  static HWY_INLINE V Lookup(V table, V lanes) {
    return V{_mm512_permutexvar_epi16(lanes.raw, table.raw)};
  }
};

// The words of four groups of any scales. While nothing leaves the normal numbers, how a product is
// rounded does not depend on eeee: eight products (8 + mmm) * scale, with other exponents, are all
// there are.
class ScaledE4M3Words {
 public:
  static constexpr size_t kGroups = 4;

  HWY_INLINE explicit ScaledE4M3Words(const float (&scales)[kGroups]) {
    alignas(64) static constexpr float kMantissas[16] = {8, 9, 10, 11, 12, 13, 14, 15,
                                                         8, 9, 10, 11, 12, 13, 14, 15};
    const hn::Full512<float> df;
    const hn::Full256<float> half;
    const auto mantissas = hn::Load(df, kMantissas);
    const auto words = [&](float first, float second) HWY_ATTR {
      const auto scale = hn::Combine(df, hn::Set(half, second), hn::Set(half, first));
      return hn::ShiftRight<16>(RoundedBits(hn::Mul(mantissas, scale)));
    };
    const hn::Full256<uint16_t> du16;
    products_ = hn::Combine(D(), hn::TruncateTo(du16, words(scales[2], scales[3])),
                            hn::TruncateTo(du16, words(scales[0], scales[1])));
  }

  HWY_INLINE E4M3Words Group(size_t g) const {
    const D d;
    const V first = hn::Set(d, static_cast<uint16_t>(8 * g));
    const auto words = [&](const E4M3Products& of) HWY_ATTR {
      const V products = E4M3Words::Lookup(products_, hn::Add(first, hn::Load(d, of.product)));
      return hn::Add(products, hn::Load(d, of.power));
    };
    E4M3Words group{words(kUsualProducts), words(kSmallProducts)};
    group.SetZero();
    return group;
  }

 private:
  using D = E4M3Words::D;
  using V = E4M3Words::V;

  V products_;  // word 8 g + mmm: bfloat16((8 + mmm) * scale of group g)
};

#endif  // AVX-512

#if PF_HAS_BYTE_TABLES

// A codec of rows of codes as one of words; itself where there is no lookup.
template <class Codec>
class E4M3Pairs : public Codec {
 public:
  using Row = typename Codec::Row;
  using Word = Bfloat16;
  static constexpr float largest_word() { return 0; }
  static constexpr float word_unit() { return 1; }
  // Interleaving takes the lower half of each 128 bits, then the upper.
  static constexpr size_t WordElement(size_t i) {
    return i % kWords / 8 * 16 + i / kWords * 8 + i % 8;
  }
  static constexpr size_t PairElement(size_t i) { return WordElement(InterleavedRowWord(i)); }

  HWY_INLINE E4M3Pairs() : bytes_(WordsOfOne()) {}

  HWY_INLINE void LoadWords(const Row& row, size_t d, Words (&to)[2]) const {
    const ByteVec codes{_mm512_loadu_si512(row.data + d)};
    const auto [first, second] = bytes_.HalvesOf(codes);
    to[0] = Words{first.raw};
    to[1] = Words{second.raw};
  }
  HWY_INLINE void LoadPairs(const Row& a, const Row& b, size_t d, Words (&to)[4]) const {
    InterleaveRows(*this, a, b, d, to);
  }

 private:
  static HWY_INLINE E4M3WordBytes WordsOfOne() {
    E4M3Words words;
    words.SetPowerOfTwo(1);
    return words.Bytes();
  }

  E4M3WordBytes bytes_;
};

#else
template <class Codec>
using E4M3Pairs = Codec;
#endif

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#endif  // toggle
