// SPDX-License-Identifier: Apache-2.0
// Vector loads and stores of the number formats as float lanes, for kernels. Include inside a file
// that hwy/foreach_target.h recompiles. Results equal the scalar conversions of small_float.h bit
// for bit.
#if defined(PAGEFUSE_KERNELS_NUMERIC_CONVERT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAGEFUSE_KERNELS_NUMERIC_CONVERT_INL_H_
#undef PAGEFUSE_KERNELS_NUMERIC_CONVERT_INL_H_
#else
#define PAGEFUSE_KERNELS_NUMERIC_CONVERT_INL_H_
#endif

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "hwy/highway.h"

#include "pagefuse/ops/kernels/numeric/bfloat16_unit.h"
#include "pagefuse/ops/kernels/numeric/byte_tables-inl.h"
#include "pagefuse/ops/kernels/numeric/lane_bytes-inl.h"
#include "pagefuse/ops/kernels/numeric/small_float.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Highway's own float16 conversions round as the scalar ones only where the hardware does them.
#undef PF_HAS_F16C
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
#define PF_HAS_F16C 1
#else
#define PF_HAS_F16C 0
#endif

// The upper halves of the floats in v, rounded to nearest even, in 32-bit lanes: EncodeLanes for
// bfloat16, whose exponent is the float's.
template <class DF, class V = hn::Vec<DF>>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<DF>> EncodeBfloat16Lanes(DF /*df*/, V v) {
  const hn::RebindToUnsigned<DF> du;
  const auto bits = hn::BitCast(du, v);
  const auto upper = hn::ShiftRight<16>(bits);
  const auto odd = hn::And(upper, hn::Set(du, 1u));
  const auto rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(du, 0x7FFFu)), odd));
  constexpr uint32_t kQuiet = uint32_t{1} << (Bfloat16Format::kMantissaBits - 1);
  return hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), hn::Or(upper, hn::Set(du, kQuiet)),
                        rounded);
}

#undef PF_MAY_ROUND_TO_BFLOAT16
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3_DL
#define PF_MAY_ROUND_TO_BFLOAT16 1

// v as bfloat16 by the processor's instruction, bit for bit as EncodeBfloat16Lanes. False if there
// is none, or if it would take a lane for 0, a subnormal. Highway 1.0.3 has no intrinsic. Other
// targets do without, so that files need HWY_WANT_AVX3_DL for it and the steps in integers are
// tested on processors with it too.
HWY_INLINE bool RoundedToBfloat16(hn::Vec512<float> v, hn::Vec256<uint16_t>& codes) {
  constexpr int kSubnormal = 0x20;
  if (!kHasAvx512Bf16 || _mm512_fpclass_ps_mask(v.raw, kSubnormal) != 0) return false;
  asm("vcvtneps2bf16 %1, %0" : "=v"(codes.raw) : "v"(v.raw));
  return true;
}

// v is a whole vector of floats of such a target.
template <typename T, class DF>
constexpr bool kMayRoundToBfloat16 = hn::MaxLanes(DF()) == 16 && std::is_same_v<T, Bfloat16>;
#else
#define PF_MAY_ROUND_TO_BFLOAT16 0
#endif

// Codes of format F, one in each 32-bit lane, of the floats in v.
template <class F, Overflow overflow, class DF, class V = hn::Vec<DF>>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<DF>> EncodeLanes(DF df, V v) {
  static_assert(F::kSpecials != FloatSpecials::kFnuz);
  if constexpr (std::is_same_v<F, Bfloat16Format> && overflow == Overflow::kSpecial) {
    return EncodeBfloat16Lanes(df, v);
  }
  const hn::RebindToUnsigned<DF> du;
  const hn::RebindToSigned<DF> di;
  constexpr int kShift = 23 - F::kMantissaBits;
  const auto bits = hn::BitCast(du, v);
  const auto magnitude = hn::And(bits, hn::Set(du, 0x7FFFFFFFu));
  const auto signed_magnitude = hn::BitCast(di, magnitude);  // compares of signed lanes are cheaper

  const auto odd = hn::And(hn::ShiftRight<kShift>(magnitude), hn::Set(du, 1u));
  const auto rounded =
      hn::Add(hn::Add(magnitude, hn::Set(du, (uint32_t{1} << (kShift - 1)) - 1)), odd);
  auto code = hn::Sub(hn::ShiftRight<kShift>(rounded),
                      hn::Set(du, uint32_t{127 - F::kBias} << F::kMantissaBits));
  if constexpr (F::kBias != 127) {  // subnormals, as in RoundMagnitude
    constexpr int32_t kMinNormal = int32_t{127 - F::kBias + 1} << 23;
    const auto rounder = hn::Set(du, uint32_t{1 - F::kBias - F::kMantissaBits + 23 + 127} << 23);
    const auto sum = hn::Add(hn::BitCast(df, magnitude), hn::BitCast(df, rounder));
    const auto subnormal = hn::Sub(hn::BitCast(du, sum), rounder);
    const auto is_subnormal = hn::RebindMask(du, hn::Lt(signed_magnitude, hn::Set(di, kMinNormal)));
    code = hn::IfThenElse(is_subnormal, subnormal, code);
  }
  constexpr bool kToNan = overflow == Overflow::kSpecial && F::kSpecials == FloatSpecials::kFn;
  if constexpr (kToNan) {
    code = hn::Min(code, hn::Set(du, F::kMagnitudeMask));
  } else {
    code = hn::Min(code,
                   hn::Set(du, overflow == Overflow::kSaturate ? F::kMaxFinite : F::kTopExponent));
  }
  auto nan = hn::Set(du, F::kMagnitudeMask);
  if constexpr (sizeof(typename F::Storage) == 2) {
    constexpr uint32_t kQuiet = uint32_t{1} << (F::kMantissaBits - 1);
    nan = hn::Or(hn::And(hn::ShiftRight<kShift>(magnitude), hn::Set(du, kQuiet * 2 - 1)),
                 hn::Set(du, F::kTopExponent | kQuiet));
  }
  const auto is_nan = hn::RebindMask(du, hn::Gt(signed_magnitude, hn::Set(di, 0x7F800000)));
  code = hn::IfThenElse(is_nan, nan, code);
  constexpr int kSignShift = 31 - std::countr_zero(F::kSignBit);
  auto sign = hn::And(hn::ShiftRight<kSignShift>(bits), hn::Set(du, F::kSignBit));
  if constexpr (F::kSpecials == FloatSpecials::kNone) sign = hn::IfThenZeroElse(is_nan, sign);
  return hn::Or(code, sign);
}

// The floats of codes of format F in 32-bit lanes.
template <class F, class DF, class VU>
HWY_INLINE hn::Vec<DF> DecodeLanes(DF df, VU codes) {
  static_assert(F::kSpecials == FloatSpecials::kIeee || F::kSpecials == FloatSpecials::kFn);
  const hn::RebindToUnsigned<DF> du;
  const hn::RebindToSigned<DF> di;
  constexpr int kShift = 23 - F::kMantissaBits;
  constexpr int kSignShift = F::kSignBit == 0x80 ? 24 : 16;
  const auto code_magnitude = hn::And(codes, hn::Set(du, F::kMagnitudeMask));
  const auto sign = hn::ShiftLeft<kSignShift>(hn::And(codes, hn::Set(du, F::kSignBit)));
  const auto shifted = hn::ShiftLeft<kShift>(code_magnitude);
  const auto scale = hn::BitCast(df, hn::Set(du, uint32_t{127 + 127 - F::kBias} << 23));
  const auto finite = hn::BitCast(du, hn::Mul(hn::BitCast(df, shifted), scale));
  const auto special = hn::Or(shifted, hn::Set(du, 0x7F800000u));
  const auto is_special = hn::RebindMask(
      du, hn::Gt(hn::BitCast(di, code_magnitude), hn::Set(di, int32_t{F::kMaxFinite})));
  return hn::BitCast(df, hn::Or(hn::IfThenElse(is_special, special, finite), sign));
}

// Lanes(df) consecutive elements at p as floats; no alignment needed. T: float, Float16, Bfloat16,
// Float8E4M3FN, Float8E5M2, int8_t, uint8_t.
template <class DF, typename T>
HWY_INLINE hn::Vec<DF> LoadToFloat(DF df, const T* HWY_RESTRICT p) {
  const hn::RebindToUnsigned<DF> du;
  const hn::RebindToSigned<DF> di;
  if constexpr (std::is_same_v<T, float>) {
    return hn::LoadU(df, p);
  } else if constexpr (std::is_same_v<T, int8_t> || std::is_same_v<T, uint8_t>) {
    return hn::ConvertTo(df, hn::PromoteTo(di, hn::LoadU(hn::Rebind<T, DF>(), p)));
  } else {
    const hn::Rebind<typename T::Storage, DF> storage;
    const auto codes = hn::LoadU(storage, reinterpret_cast<const typename T::Storage*>(p));
    if constexpr (std::is_same_v<T, Bfloat16>) {
      return hn::BitCast(df, hn::ShiftLeft<16>(hn::PromoteTo(du, codes)));
    } else {
#if PF_HAS_F16C
      const hn::Rebind<hwy::float16_t, DF> df16;
      if constexpr (std::is_same_v<T, Float16>) {
        return hn::PromoteTo(df, hn::BitCast(df16, codes));
      } else if constexpr (std::is_same_v<T, Float8E4M3FN>) {
        // Shifted by seven the code is a float16 of the value / 256: the hardware then does the
        // subnormals without the cost of subnormal floats. The code of NaN becomes all ones.
        const hn::Rebind<uint16_t, DF> du16;
        const auto wide = hn::PromoteTo(du16, codes);
        const auto magnitude = hn::ShiftLeft<7>(hn::And(wide, hn::Set(du16, 0x7F)));
        const auto sign = hn::ShiftLeft<8>(hn::And(wide, hn::Set(du16, 0x80)));
        const auto nan = hn::VecFromMask(du16, hn::Eq(magnitude, hn::Set(du16, 0x7F << 7)));
        const auto half = hn::Or(hn::Or(magnitude, sign), nan);
        return hn::Mul(hn::PromoteTo(df, hn::BitCast(df16, half)), hn::Set(df, 256.0f));
      }
#endif
      return DecodeLanes<typename T::Format>(df, hn::PromoteTo(du, codes));
    }
  }
}

// Rounds the lanes to T and stores them at p; no alignment needed. int8_t: to nearest even,
// saturating, NaN to 0.
template <class DF, typename T, class V = hn::Vec<DF>>
HWY_INLINE void StoreFromFloat(V v, DF df, T* HWY_RESTRICT p) {
  const hn::RebindToSigned<DF> di;
  if constexpr (std::is_same_v<T, float>) {
    hn::StoreU(v, df, p);
  } else if constexpr (std::is_same_v<T, int8_t>) {
    const auto number = hn::IfThenZeroElse(hn::IsNaN(v), v);
    const auto clamped = hn::Min(hn::Max(number, hn::Set(df, -128.0f)), hn::Set(df, 127.0f));
    const hn::Rebind<int8_t, DF> di8;
    hn::StoreU(hn::DemoteTo(di8, hn::NearestInt(clamped)), di8, p);
  } else {
    const hn::Rebind<typename T::Storage, DF> storage;
    auto* out = reinterpret_cast<typename T::Storage*>(p);
#if PF_HAS_F16C
    if constexpr (std::is_same_v<T, Float16>) {
      const hn::Rebind<hwy::float16_t, DF> df16;
      hn::StoreU(hn::BitCast(storage, hn::DemoteTo(df16, v)), storage, out);
      return;
    }
#endif
#if PF_MAY_ROUND_TO_BFLOAT16
    if constexpr (kMayRoundToBfloat16<T, DF>) {
      hn::Vec256<uint16_t> codes;
      if (RoundedToBfloat16(v, codes)) return hn::StoreU(codes, storage, out);
    }
#endif
    using F = typename T::Format;
    const auto codes = EncodeLanes<F, F::kDefaultOverflow>(df, v);
    hn::StoreU(hn::DemoteTo(storage, hn::BitCast(di, codes)), storage, out);
  }
}

// The first `count` elements (at most Lanes(df)), zeros behind them. Reads nothing past them.
template <class DF, typename T>
HWY_INLINE hn::Vec<DF> LoadToFloatN(DF df, const T* HWY_RESTRICT p, size_t count) {
  constexpr size_t kLanes = hn::MaxLanes(DF());
  alignas(64) T buffer[kLanes];
  count = HWY_MIN(count, kLanes);
  std::memset(static_cast<void*>(buffer), 0, sizeof(buffer));
  std::memcpy(static_cast<void*>(buffer), p, count * sizeof(T));
  return LoadToFloat(df, buffer);
}

// Stores the first `count` lanes and writes nothing past them.
template <class DF, typename T, class V = hn::Vec<DF>>
HWY_INLINE void StoreFromFloatN(V v, DF df, T* HWY_RESTRICT p, size_t count) {
  constexpr size_t kLanes = hn::MaxLanes(DF());
  alignas(64) T buffer[kLanes];
  count = HWY_MIN(count, kLanes);
  StoreFromFloat(v, df, buffer);
  std::memcpy(static_cast<void*>(p), buffer, count * sizeof(T));
}

#if HWY_TARGET != HWY_SCALAR

// Codes of a byte format F of numbers that round to at most its largest one: cheaper than
// EncodeLanes, and four vectors become bytes at once. As in RoundMagnitude the FPU rounds: a number
// of exponent e is added to 2^(e + 23 - mantissa bits), whose unit in the last place is a step of
// the code. Subnormals have the steps of the least normal exponent.
template <class F>
struct FiniteCodes {
  static constexpr int kShift = 23 - F::kMantissaBits;
  static constexpr uint32_t kLeastExponent = uint32_t{127 - F::kBias + 1} << 23;
  // What the low byte of Term is larger than the code, modulo 256.
  static constexpr uint8_t kExcess =
      static_cast<uint8_t>((kLeastExponent + (uint32_t{kShift} << 23)) >> kShift);

  // The code of a magnitude, plus kExcess, in the low byte; anything above it.
  template <class DF, class V>
  static HWY_INLINE hn::Vec<hn::RebindToUnsigned<DF>> Term(DF df, V magnitude) {
    const hn::RebindToUnsigned<DF> du;
    const hn::RebindToSigned<DF> di;
    const auto exponent = hn::Max(hn::And(hn::BitCast(di, magnitude), hn::Set(di, 0x7F800000)),
                                  hn::Set(di, static_cast<int32_t>(kLeastExponent)));
    const auto steps = hn::Set(df, static_cast<float>(uint32_t{1} << kShift));
    // Below the exponent bits it has the number of steps, in them the power of two.
    const auto sum = hn::BitCast(du, hn::MulAdd(hn::BitCast(df, exponent), steps, magnitude));
    return hn::Add(sum, hn::ShiftRight<kShift>(sum));
  }
};

#if PF_HAS_BYTE_TABLES

// Of the 32-bit lanes of two vectors the low bytes, then the high ones.
struct OuterBytes {
  alignas(64) uint8_t at[64];
  constexpr OuterBytes() : at{} {
    for (size_t i = 0; i < 64; ++i) at[i] = static_cast<uint8_t>(i % 32 * 4 + i / 32 * 3);
  }
};
inline constexpr OuterBytes kOuterBytes;

// FiniteCodesOfFour of formats of eight bits: terms that keep their signs.
template <class F, bool saturates, class V>
HWY_INLINE ByteVec FiniteBytesOfFour(V q0, V q1, V q2, V q3) {
  static_assert(F::kSignBit == 0x80);
  using Codes = FiniteCodes<F>;
  const hn::Full512<float> df;
  const hn::Full512<uint32_t> du;
  const hn::Full512<uint8_t> d8;
  // The number of the smaller or larger magnitude with the sign of the first.
  constexpr int kSmaller = 2;
  constexpr int kLarger = 3;
  const V least = hn::BitCast(df, hn::Set(du, Codes::kLeastExponent));
  const V most = hn::Set(df, DecodeFloat<F>(F::kMaxFinite));
  const V steps = hn::Set(df, static_cast<float>(uint32_t{1} << Codes::kShift));
  const auto term = [&](V q) HWY_ATTR {
    if constexpr (saturates) q = V{_mm512_range_ps(q.raw, most.raw, kSmaller)};
    const V exponent = hn::And(q, hn::BitCast(df, hn::Set(du, 0xFF800000u)));
    const V base{_mm512_range_ps(exponent.raw, least.raw, kLarger)};
    const auto sum = hn::BitCast(du, hn::MulAdd(base, steps, q));
    return hn::Add(sum, hn::ShiftRight<Codes::kShift>(sum));
  };
  const auto outer = [&](auto a, auto b) HWY_ATTR {
    return LookupBytes(ByteVec{a.raw}, ByteVec{b.raw}, hn::Load(d8, kOuterBytes.at));
  };
  const ByteVec first = outer(term(q0), term(q1));
  const ByteVec second = outer(term(q2), term(q3));
  const ByteVec low{_mm512_shuffle_i64x2(first.raw, second.raw, 0x44)};
  const ByteVec high{_mm512_shuffle_i64x2(first.raw, second.raw, 0xEE)};
  return hn::OrAnd(hn::Sub(low, hn::Set(d8, Codes::kExcess)), high, hn::Set(d8, F::kSignBit));
}

#endif

// The codes of four vectors as bytes in the order of memory; of e2m1 in the low half of each byte.
// Numbers beyond the largest one of F become it if `saturates`, and must not come else.
template <class F, bool saturates, class DF, class V>
HWY_INLINE hn::Vec<hn::Repartition<uint8_t, DF>> FiniteCodesOfFour(DF df, V q0, V q1, V q2, V q3) {
#if PF_HAS_BYTE_TABLES
  if constexpr (F::kSignBit == 0x80) return FiniteBytesOfFour<F, saturates>(q0, q1, q2, q3);
#endif
  using Codes = FiniteCodes<F>;
  const hn::RebindToUnsigned<DF> du;
  const hn::Repartition<uint8_t, DF> d8;
  const auto term = [&](V q) HWY_ATTR {
    const auto magnitude = hn::Abs(q);
    if constexpr (!saturates) return Codes::Term(df, magnitude);
    return Codes::Term(df, hn::Min(magnitude, hn::Set(df, DecodeFloat<F>(F::kMaxFinite))));
  };
  const auto joined = JoinLowBytes(du, term(q0), term(q1), term(q2), term(q3));
  const auto codes = hn::BitCast(du, hn::Sub(hn::BitCast(d8, joined), hn::Set(d8, Codes::kExcess)));
  constexpr int kSign = 31 - std::countr_zero(F::kSignBit);
  const auto sign_at = [&](uint32_t shift) HWY_ATTR { return hn::Set(du, F::kSignBit << shift); };
  const auto bits = [&](V q) HWY_ATTR { return hn::BitCast(du, q); };
  const auto s0 = hn::And(hn::ShiftRight<kSign>(bits(q0)), sign_at(0));
  const auto s01 = hn::OrAnd(s0, hn::ShiftRight<kSign - 8>(bits(q1)), sign_at(8));
  const auto s2 = hn::OrAnd(codes, hn::ShiftRight<kSign - 16>(bits(q2)), sign_at(16));
  const auto s23 = hn::OrAnd(s2, hn::ShiftRight<kSign - 24>(bits(q3)), sign_at(24));
  return BytesByVector(du, hn::Or(s01, s23));
}

// The codes of four vectors of numbers as int8_t. Added to 1.5 * 2^23 a number of that size leaves
// its nearest integer in the low bits.
template <class DF, class V>
HWY_INLINE hn::Vec<hn::Repartition<uint8_t, DF>> IntegersOfFour(DF df, V q0, V q1, V q2, V q3) {
  const hn::RebindToUnsigned<DF> du;
  const auto rounded = [&](V q) HWY_ATTR {
    const auto clamped = hn::Min(hn::Max(q, hn::Set(df, -128.0f)), hn::Set(df, 127.0f));
    return hn::BitCast(du, hn::Add(clamped, hn::Set(df, 0x1.8p23f)));
  };
  return BytesByVector(du, JoinLowBytes(du, rounded(q0), rounded(q1), rounded(q2), rounded(q3)));
}

// Stores four vectors as T, a saturating format of a byte; false, with nothing written, if a NaN
// may be among them.
template <typename T, class V>
HWY_INLINE bool StoreFourNumbers(V q0, V q1, V q2, V q3, T* HWY_RESTRICT p) {
  const hn::DFromV<V> df;
  const auto sum = hn::Add(hn::Add(q0, q1), hn::Add(q2, q3));
  if (!hn::AllFalse(df, hn::IsNaN(sum))) return false;
  const hn::Repartition<uint8_t, decltype(df)> d8;
  auto* to = reinterpret_cast<uint8_t*>(p);
  if constexpr (std::is_same_v<T, int8_t>) {
    hn::StoreU(IntegersOfFour(df, q0, q1, q2, q3), d8, to);
  } else {
    hn::StoreU(FiniteCodesOfFour<typename T::Format, /*saturates=*/true>(df, q0, q1, q2, q3), d8,
               to);
  }
  return true;
}

#endif  // HWY_TARGET != HWY_SCALAR

// Stores transform(v) of the vectors v of from[0, count), converted to float, at to; From and To as
// above. Reads and writes nothing past them.
template <typename From, typename To, class Transform>
HWY_INLINE void TransformArray(const From* HWY_RESTRICT from, size_t count, To* HWY_RESTRICT to,
                               const Transform& transform) {
  const hn::ScalableTag<float> df;
  const size_t lanes = hn::Lanes(df);
  const auto get = [&](size_t i) HWY_ATTR { return transform(LoadToFloat(df, from + i)); };
  size_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  if constexpr (std::is_same_v<To, Float8E4M3FN> || std::is_same_v<To, Float8E5M2> ||
                std::is_same_v<To, int8_t>) {
    for (; i + 4 * lanes <= count; i += 4 * lanes) {
      if (StoreFourNumbers(get(i), get(i + lanes), get(i + 2 * lanes), get(i + 3 * lanes),
                           to + i)) {
        continue;
      }
      for (size_t k = i; k < i + 4 * lanes; k += lanes) StoreFromFloat(get(k), df, to + k);
    }
  }
#endif
  for (; i + lanes <= count; i += lanes) StoreFromFloat(get(i), df, to + i);
  if (i < count) {
    StoreFromFloatN(transform(LoadToFloatN(df, from + i, count - i)), df, to + i, count - i);
  }
}

// Converts `count` elements; From and To as above. Reads and writes nothing past them.
template <typename From, typename To>
HWY_INLINE void ConvertArray(const From* HWY_RESTRICT from, size_t count, To* HWY_RESTRICT to) {
  TransformArray(from, count, to, [](auto v) HWY_ATTR { return v; });
}

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#endif  // toggle
