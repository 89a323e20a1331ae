// EncodeGroup in vectors: the same bytes. Include inside a file that
// hwy/foreach_target.h recompiles.
#if defined(PAGEFUSE_KERNELS_FORMATS_GROUP_CODEC_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAGEFUSE_KERNELS_FORMATS_GROUP_CODEC_INL_H_
#undef PAGEFUSE_KERNELS_FORMATS_GROUP_CODEC_INL_H_
#else
#define PAGEFUSE_KERNELS_FORMATS_GROUP_CODEC_INL_H_
#endif

#include <algorithm>

#include "hwy/highway.h"

#include "pagefuse/kernels/formats/group_format.h"
#include "pagefuse/kernels/formats/pack_codes-inl.h"
#include "pagefuse/kernels/numeric/convert-inl.h"
#include "pagefuse/kernels/numeric/extremes-inl.h"

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

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#endif  // toggle
