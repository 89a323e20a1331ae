// SPDX-License-Identifier: Apache-2.0
// RoundThrough (convert.h) in vectors. Include inside a file that hwy/foreach_target.h recompiles.
#if defined(PAGEFUSE_KERNELS_NUMERIC_ROUND_THROUGH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAGEFUSE_KERNELS_NUMERIC_ROUND_THROUGH_INL_H_
#undef PAGEFUSE_KERNELS_NUMERIC_ROUND_THROUGH_INL_H_
#else
#define PAGEFUSE_KERNELS_NUMERIC_ROUND_THROUGH_INL_H_
#endif

#include <cstddef>
#include <type_traits>

#include "hwy/highway.h"

#include "pagefuse/ops/kernels/numeric/convert-inl.h"
#include "pagefuse/ops/kernels/numeric/small_float.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Rounds lanes of floats to the 16-bit type T, to nearest even, and back, bit for bit as
// small_float.h.
template <typename T, class DF, class V = hn::Vec<DF>>
HWY_INLINE hn::Vec<DF> RoundThrough(DF df, V v) {
#if PF_MAY_ROUND_TO_BFLOAT16
  if constexpr (kMayRoundToBfloat16<T, DF>) {
    const hn::RebindToUnsigned<DF> du;
    hn::Vec256<uint16_t> codes;
    if (RoundedToBfloat16(v, codes)) {
      return hn::BitCast(df, hn::ShiftLeft<16>(hn::PromoteTo(du, codes)));
    }
  }
#endif
  if constexpr (std::is_same_v<T, Bfloat16>) {
    return hn::BitCast(df, hn::ShiftLeft<16>(EncodeBfloat16Lanes(df, v)));
  } else {
    alignas(64) T buffer[hn::MaxLanes(df)];
    StoreFromFloat(v, df, buffer);
    return LoadToFloat(df, buffer);
  }
}

// The same for x[0, n).
template <typename T>
HWY_INLINE void RoundThroughVectors(float* HWY_RESTRICT x, size_t n) {
  const hn::ScalableTag<float> df;
  const size_t lanes = hn::Lanes(df);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(RoundThrough<T>(df, hn::LoadU(df, x + i)), df, x + i);
  }
  for (; i < n; ++i) x[i] = static_cast<float>(T(x[i]));
}

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#endif  // toggle
