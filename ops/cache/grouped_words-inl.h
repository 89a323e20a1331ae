// Rows of latent caches as bfloat16 words, the operands of tile products. Include inside a file
// that hwy/foreach_target.h recompiles. Works on every target, is meant for AVX-512.
#if defined(PAGEFUSE_OPS_CACHE_GROUPED_WORDS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAGEFUSE_OPS_CACHE_GROUPED_WORDS_INL_H_
#undef PAGEFUSE_OPS_CACHE_GROUPED_WORDS_INL_H_
#else
#define PAGEFUSE_OPS_CACHE_GROUPED_WORDS_INL_H_
#endif

#include <algorithm>
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

// bfloat16(code * scale) of e4m3fn codes by lookup. A code is s eeee mmm. While nothing leaves the
// normal numbers, how a product is rounded does not depend on eeee: eight products (8 + mmm) *
// scale, with other exponents, are all there are.
class ScaledE4M3Words {
 public:
  static constexpr size_t kGroups = 4;  // whose scales one object holds
  static constexpr size_t kStep = 32;   // codes at a time

  // False if a product may leave the normal numbers: the object is of no use then.
  HWY_INLINE bool SetScales(const float (&scales)[kGroups]) {
    for (const float scale : scales) {
      if (!(scale >= 0x1p-100f && scale <= 0x1p100f)) return false;
    }
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
    return true;
  }

  // `size` codes of group g, a multiple of kStep.
  HWY_INLINE void Decode(size_t g, size_t size, const uint8_t* HWY_RESTRICT codes,
                         uint16_t* HWY_RESTRICT to) const {
    const D d;
    const hn::Full256<uint8_t> du8;
    V usual, small;
    Tables(g, usual, small);
    const V above = hn::Set(d, 0x60);
    const V magnitude = hn::Set(d, 0x7F);
    for (size_t i = 0; i < size; i += kStep) {
      const V code = hn::PromoteTo(d, hn::LoadU(du8, codes + i));
      const V high = hn::And(code, above);
      const V from_small = Lookup(small, code);
      V word = hn::Add(Lookup(usual, code), hn::ShiftLeft<4>(high));
      word = hn::IfThenElse(hn::Eq(high, hn::Zero(d)), from_small, word);
      const auto is_nan = hn::Eq(hn::And(code, magnitude), magnitude);
      word = hn::IfThenElse(is_nan, hn::Set(d, 0x7FC0), word);
      const V sign = hn::And(hn::ShiftLeft<8>(code), hn::Set(d, 0x8000));
      hn::StoreU(hn::Or(word, sign), d, to + i);
    }
  }

 private:
  using D = hn::Full512<uint16_t>;
  using V = hn::Vec<D>;

  // Elements of a table by the low five bits of each lane.
  static HWY_INLINE V Lookup(V table, V lanes) {
    return V{_mm512_permutexvar_epi16(lanes.raw, table.raw)};
  }

  // Words of the codes ee mmm: `small` where the two bits above are 0, which takes subnormal codes
  // in, `usual` for the others but without their upper exponent bits.
  HWY_INLINE void Tables(size_t g, V& usual, V& small) const {
    // Codes whose exponent is not 0: (8 + mmm) 2^(ee - 10).
    alignas(64) static constexpr uint16_t kLane[32] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10,
                                                       11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
                                                       22, 23, 24, 25, 26, 27, 28, 29, 30, 31};
    // The others: mmm 2^-9 as (8 + mantissa) 2^-exponent.
    alignas(64) static constexpr uint16_t kMantissa[32] = {0, 0, 0, 4, 0, 2, 4, 6};
    alignas(64) static constexpr uint16_t kExponent[32] = {0, 12, 11, 11, 10, 10, 10, 10};
    const D d;
    const V first = hn::Set(d, static_cast<uint16_t>(8 * g));
    const V lane = hn::Load(d, kLane);
    const V mantissa = hn::And(lane, hn::Set(d, 7));
    // In wrapping arithmetic.
    const V exponent = hn::ShiftLeft<7>(hn::Sub(hn::ShiftRight<3>(lane), hn::Set(d, 10)));
    usual = hn::Add(Lookup(products_, hn::Add(first, mantissa)), exponent);
    const V products = Lookup(products_, hn::Add(first, hn::Load(d, kMantissa)));
    const V subnormal = hn::Sub(products, hn::ShiftLeft<7>(hn::Load(d, kExponent)));
    small = hn::IfThenElse(hn::Lt(lane, hn::Set(d, 8)), subnormal, usual);
    small = hn::IfThenElseZero(hn::Ne(lane, hn::Zero(d)), small);
  }

  V products_;  // word 8 g + mmm: bfloat16((8 + mmm) * scale of group g)
};

// The coded elements of a row as bfloat16. Returns how many were decoded; fewer than all where
// groups are unusual or scales extreme.
template <class Codec>
HWY_INLINE size_t DecodeCodedWords(const Codec& codec, const typename Codec::Row& row,
                                   uint16_t* HWY_RESTRICT to) {
  constexpr size_t kGroups = ScaledE4M3Words::kGroups;
  const size_t group = codec.group();
  const size_t size = codec.coded();
  if (group % ScaledE4M3Words::kStep != 0) return 0;
  for (size_t begin = 0; begin < size; begin += kGroups * group) {
    float scales[kGroups];
    for (size_t g = 0; g < kGroups; ++g) {
      scales[g] = codec.ScaleAt(row, std::min(begin + g * group, size - 1));
    }
    ScaledE4M3Words words;
    if (!words.SetScales(scales)) return begin;
    for (size_t g = 0; g < kGroups && begin + g * group < size; ++g) {
      const size_t d = begin + g * group;
      words.Decode(g, group, row.data + d, to + d);
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
