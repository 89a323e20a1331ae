// SPDX-License-Identifier: Apache-2.0
// Two vectors of floats from neighbouring elements of a type, at the least cost. Include inside a
// file that hwy/foreach_target.h recompiles.
#if defined(PAGEFUSE_KERNELS_NUMERIC_FLOAT_PAIRS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAGEFUSE_KERNELS_NUMERIC_FLOAT_PAIRS_INL_H_
#undef PAGEFUSE_KERNELS_NUMERIC_FLOAT_PAIRS_INL_H_
#else
#define PAGEFUSE_KERNELS_NUMERIC_FLOAT_PAIRS_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"

#include "pagefuse/ops/kernels/numeric/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

// even = p[0], p[2], ... and odd = p[1], p[3], ..., each the upper half of its float.
template <class DF, class V>
HWY_INLINE void LoadBfloat16Pairs(DF df, const Bfloat16* HWY_RESTRICT p, V& even, V& odd) {
  const hn::RebindToUnsigned<DF> du;
  const hn::Repartition<uint16_t, DF> du16;
  const auto pairs = hn::BitCast(du, hn::LoadU(du16, reinterpret_cast<const uint16_t*>(p)));
  even = hn::BitCast(df, hn::ShiftLeft<16>(pairs));
  odd = hn::BitCast(df, hn::And(pairs, hn::Set(du, 0xFFFF0000u)));
}

#endif

// Load gives the elements p[0, 2 * Lanes(df)) / kUnit: the first vector and the second, or with
// kEvenOdd those with even and those with odd numbers.
template <typename T>
struct FloatPairs {
  static constexpr float kUnit = 1.0f;
  static constexpr bool kEvenOdd = false;

  template <class DF, class V>
  static HWY_INLINE void Load(DF df, const T* HWY_RESTRICT p, V& a, V& b) {
    a = LoadToFloat(df, p);
    b = LoadToFloat(df, p + hn::Lanes(df));
  }
};

#if HWY_TARGET != HWY_SCALAR
template <>
struct FloatPairs<Bfloat16> {
  static constexpr float kUnit = 1.0f;
  static constexpr bool kEvenOdd = true;

  template <class DF, class V>
  static HWY_INLINE void Load(DF df, const Bfloat16* HWY_RESTRICT p, V& a, V& b) {
    LoadBfloat16Pairs(df, p, a, b);
  }
};
#endif

#if PF_HAS_F16C
// Shifted by seven, a code is a float16 of the value / 256 (see LoadToFloat), which is what this
// gives: the factor costs nothing elsewhere. Two vectors of floats are one of codes in 16 bits.
template <>
struct FloatPairs<Float8E4M3FN> {
  static constexpr float kUnit = 256.0f;
  static constexpr bool kEvenOdd = false;

  template <class DF, class V>
  static HWY_INLINE void Load(DF df, const Float8E4M3FN* HWY_RESTRICT p, V& a, V& b) {
    const hn::Repartition<int16_t, DF> di16;
    const hn::Rebind<int8_t, decltype(di16)> di8;
    const hn::Rebind<hwy::float16_t, DF> df16;
    const hn::Half<decltype(di16)> half;
    const auto* codes = reinterpret_cast<const int8_t*>(p);
    const auto halves = Halves(di16, hn::PromoteTo(di16, hn::LoadU(di8, codes)));
    a = hn::PromoteTo(df, hn::BitCast(df16, hn::LowerHalf(half, halves)));
    b = hn::PromoteTo(df, hn::BitCast(df16, hn::UpperHalf(half, halves)));
  }

 private:
  // Of sign-extended codes: bit 14, a copy of the sign, becomes a zero, or for the code of NaN (127
  // without its sign, to which nothing can be added without a carry) a one, which is NaN too.
  template <class D16, class V16>
  static HWY_INLINE V16 Halves(D16 di16, V16 codes) {
    const auto shifted = hn::ShiftLeft<7>(codes);
    const auto carried = hn::Add(shifted, hn::Set(di16, 1 << 7));
    return hn::Xor(shifted, hn::And(carried, hn::Set(di16, 1 << 14)));
  }
};
#endif

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#endif  // toggle
