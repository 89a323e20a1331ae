// Rows of latent caches as bfloat16 words, the operands of tile products. Include inside a file
// that hwy/foreach_target.h recompiles. Works on every target, is meant for AVX-512.
#if defined(PAGEFUSE_OPS_CACHE_GROUPED_WORDS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAGEFUSE_OPS_CACHE_GROUPED_WORDS_INL_H_
#undef PAGEFUSE_OPS_CACHE_GROUPED_WORDS_INL_H_
#else
#define PAGEFUSE_OPS_CACHE_GROUPED_WORDS_INL_H_
#endif

#include <algorithm>
#include <bit>
#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"

#include "pagefuse/ops/cache/grouped_row-inl.h"

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

// The high halves of the lanes.
template <class VU>
HWY_INLINE void StoreHighHalves(VU bits, uint16_t* to) {
  const hn::Rebind<uint16_t, hn::DFromV<VU>> du16;
  hn::StoreU(hn::TruncateTo(du16, hn::ShiftRight<16>(bits)), du16, to);
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
    const uint32_t exponent = (std::bit_cast<uint32_t>(scale) >> 23) - 127;  // wraps
    const V shift = hn::Set(d, static_cast<uint16_t>(exponent << 7));
    usual = hn::Add(hn::Load(d, kUsualProducts.word), shift);
    small = hn::Add(hn::Load(d, kSmallProducts.word), shift);
    SetZero();
  }

  // `size` codes, a multiple of kStep.
  HWY_INLINE void Decode(size_t size, const uint8_t* HWY_RESTRICT codes,
                         uint16_t* HWY_RESTRICT to) const {
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

// The coded elements of a row as bfloat16. Returns how many were decoded; fewer than all where
// groups are unusual or scales extreme.
template <class Codec>
HWY_INLINE size_t DecodeCodedWords(const Codec& codec, const typename Codec::Row& row,
                                   uint16_t* HWY_RESTRICT to) {
  const size_t group = codec.group();
  const size_t size = codec.coded();
  if (group % E4M3Words::kStep != 0) return 0;
  if constexpr (Codec::kScale == GroupScale::kUe8m0) {
    for (size_t d = 0; d < size; d += group) {
      const float scale = codec.ScaleAt(row, d);
      if (!E4M3Words::Takes(scale)) return d;
      E4M3Words words;
      words.SetPowerOfTwo(scale);
      words.Decode(group, row.data + d, to + d);
    }
    return size;
  }
  constexpr size_t kGroups = ScaledE4M3Words::kGroups;
  for (size_t begin = 0; begin < size; begin += kGroups * group) {
    float scales[kGroups];
    for (size_t g = 0; g < kGroups; ++g) {
      scales[g] = codec.ScaleAt(row, std::min(begin + g * group, size - 1));
      if (!E4M3Words::Takes(scales[g])) return begin;
    }
    const ScaledE4M3Words words(scales);
    for (size_t g = 0; g < kGroups && begin + g * group < size; ++g) {
      const size_t d = begin + g * group;
      words.Group(g).Decode(group, row.data + d, to + d);
    }
  }
  return size;
}

#else

template <class Codec>
HWY_INLINE size_t DecodeCodedWords(const Codec&, const typename Codec::Row&, uint16_t*) {
  return 0;
}

#endif

// A cache row of `size` elements, all of them bfloat16 numbers once decoded, as `words` words, a
// multiple of 32: zeros behind the elements.
template <class Codec>
HWY_INLINE void DecodeRowWords(const Codec& codec, RowAddress address, size_t size, size_t words,
                               uint16_t* HWY_RESTRICT to) {
  const hn::ScalableTag<float> df;
  const hn::RebindToUnsigned<decltype(df)> du;
  const size_t lanes = hn::Lanes(df);
  const auto row = codec.Open(address);
  size_t d = 0;
  if constexpr (std::is_same_v<typename Codec::Element, Float8E4M3FN>) {
    d = DecodeCodedWords(codec, row, to);
    if (d == codec.coded()) {  // the others are bfloat16
      codec.CopyPlain(row, size - d, to + d);
      return std::fill(to + size, to + words, uint16_t{0});
    }
  }
  // Exact: only the high halves are not 0.
  for (; d + lanes <= size; d += lanes) {
    StoreHighHalves(hn::BitCast(du, codec.Load(df, row, d)), to + d);
  }
  for (; d < words; d += lanes) {
    const auto x = d < size ? codec.LoadN(df, row, d, size - d) : hn::Zero(df);
    StoreHighHalves(hn::BitCast(du, x), to + d);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#endif  // toggle
