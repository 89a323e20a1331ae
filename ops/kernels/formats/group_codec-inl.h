// SPDX-License-Identifier: Apache-2.0
// EncodeGroup and DecodeGroup in vectors: the same bytes and numbers. Include inside a file that
// hwy/foreach_target.h recompiles.
#if defined(PAGEFUSE_KERNELS_FORMATS_GROUP_CODEC_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAGEFUSE_KERNELS_FORMATS_GROUP_CODEC_INL_H_
#undef PAGEFUSE_KERNELS_FORMATS_GROUP_CODEC_INL_H_
#else
#define PAGEFUSE_KERNELS_FORMATS_GROUP_CODEC_INL_H_
#endif

#include <algorithm>

#include "hwy/highway.h"

#include "pagefuse/ops/kernels/formats/group_format.h"
#include "pagefuse/ops/kernels/formats/pack_codes-inl.h"
#include "pagefuse/ops/kernels/numeric/convert-inl.h"
#include "pagefuse/ops/kernels/numeric/extremes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// e2m1 codes of x[0, n) * factor or / divisor, packed: `quotient` maps a vector to x / scale.
template <class Quotient>
HWY_INLINE void StoreE2M1(const float* HWY_RESTRICT x, size_t n, uint8_t* HWY_RESTRICT packed,
                          const Quotient& quotient) {
  const hn::ScalableTag<float> df;
  const hn::RebindToSigned<decltype(df)> di;
  StoreCodes<4>(
      x, n,
      [&](auto v) HWY_ATTR {
        return hn::BitCast(di, EncodeLanes<E2M1Format, Overflow::kSaturate>(df, quotient(v)));
      },
      packed);
}

// Codes of x[0, n) under a given scale: EncodeGroup once the scale is known.
HWY_INLINE void EncodeUnderScale(const GroupFormat& format, float scale,
                                 const float* HWY_RESTRICT x, size_t n,
                                 uint8_t* HWY_RESTRICT codes) {
  const hn::ScalableTag<float> df;
  const auto store = [&](const auto& quotient) HWY_ATTR {
    if (format.codes == GroupCodes::kE4M3) {
      TransformArray(x, n, reinterpret_cast<Float8E4M3FN*>(codes), quotient);
    } else {
      StoreE2M1(x, n, codes, quotient);
    }
  };
  if (format.scale == GroupScale::kFloat) {
    const auto divisor = hn::Set(df, scale);
    store([&](auto v) HWY_ATTR { return hn::Div(v, divisor); });
  } else {
    // Exact: the scale is a power of two.
    const auto factor = hn::Set(df, 1.0f / scale);
    store([&](auto v) HWY_ATTR { return hn::Mul(v, factor); });
  }
}

// As EncodeGroup. No pointer needs alignment; writes exactly CodeBytes(n) bytes.
HWY_INLINE float EncodeGroupVectors(const GroupFormat& format, const float* HWY_RESTRICT x,
                                    size_t n, uint8_t* HWY_RESTRICT codes) {
  const float scale = format.ScaleOf(LargestMagnitude(x, n));
  EncodeUnderScale(format, scale, x, n, codes);
  return scale;
}

// e2m1 codes in 32-bit lanes, nothing above them, times `scale`. Twice a code is an integer: its low
// bits below 2, else a 2 or 3 that is shifted by the exponent less one.
template <class DU, class VU = hn::Vec<DU>>
HWY_INLINE hn::Vec<hn::RebindToFloat<DU>> DecodeE2M1Lanes(DU du, VU codes, float scale) {
  const hn::RebindToFloat<DU> df;
  const hn::RebindToSigned<DU> di;
  const auto magnitude = hn::And(codes, hn::Set(du, 7));
  const auto two = hn::Set(du, 2);
  const auto mantissa = hn::Or(hn::And(magnitude, hn::Set(du, 1)), two);
  const auto exponent = hn::ShiftRight<1>(hn::Max(magnitude, two));
  const auto shifted = hn::Shl(mantissa, hn::Sub(exponent, hn::Set(du, 1)));
  const auto doubled = hn::IfThenElse(hn::Lt(magnitude, two), magnitude, shifted);
  const auto value =
      hn::Mul(hn::ConvertTo(df, hn::BitCast(di, doubled)), hn::Set(df, 0.5f * scale));
  const auto sign = hn::ShiftLeft<31>(hn::ShiftRight<3>(codes));
  return hn::BitCast(df, hn::Or(hn::BitCast(du, value), sign));
}

// DecodeGroup of e2m1 codes, n of them, under a power of two: x[0, n), exact.
HWY_INLINE void DecodeE2M1Group(const uint8_t* HWY_RESTRICT packed, float scale, size_t n,
                                float* HWY_RESTRICT x) {
  const hn::ScalableTag<float> df;
  const hn::RebindToUnsigned<decltype(df)> du;
  const hn::Rebind<uint8_t, decltype(df)> d8;
  const size_t lanes = hn::Lanes(df);
  size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const auto bytes = hn::PromoteTo(du, hn::LoadU(d8, packed + i / 2));
    const auto even = DecodeE2M1Lanes(du, hn::And(bytes, hn::Set(du, 15)), scale);
    const auto odd = DecodeE2M1Lanes(du, hn::ShiftRight<4>(bytes), scale);
    hn::StoreInterleaved2(even, odd, df, x + i);
  }
  if (i < n) {
    DecodeGroup(GroupCodes::kE2M1, packed + i / 2, scale, static_cast<int64_t>(n - i), x + i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#endif  // toggle
