// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/ops/kernels/rows/quantize_hwy.cc"
#include "pagefuse/ops/kernels/rows/quantize_hwy.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse::onnx_ops {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class To>
HWY_INLINE void QuantizeTo(const float* x, int64_t n, const QuantizeParameters& p, To* y) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::Rebind<To, decltype(d)> dto;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const float low = std::is_signed<To>() ? -128.0f : 0.0f, high = low + 255.0f;
  const auto all_scales = hn::Set(d, n > 0 ? p.scales[0] : 1.0f);
  const auto all_zeros = hn::Set(d, n > 0 ? p.zeros[0] : 0.0f);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto scale = p.step == 0 ? all_scales : hn::LoadU(d, p.scales + i);
    const auto zero = p.step == 0 ? all_zeros : hn::LoadU(d, p.zeros + i);
    auto q = hn::Add(hn::Round(hn::Div(hn::LoadU(d, x + i), scale)), zero);
    q = hn::IfThenElseZero(hn::Eq(q, q), hn::Min(hn::Max(q, hn::Set(d, low)), hn::Set(d, high)));
    hn::StoreU(hn::DemoteTo(dto, hn::ConvertTo(di, q)), dto, y + i);
  }
  for (; i < n; ++i) {
    const float q = std::nearbyint(x[i] / p.scales[i * p.step]) + p.zeros[i * p.step];
    y[i] = q == q ? static_cast<To>(std::clamp(q, low, high)) : To{0};
  }
}

void QuantizeAny(const float* x, int64_t n, const QuantizeParameters& p, bool is_signed,
                 uint8_t* y) {
  if (is_signed) return QuantizeTo(x, n, p, reinterpret_cast<int8_t*>(y));
  QuantizeTo(x, n, p, y);
}

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse::onnx_ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagefuse::onnx_ops {

HWY_EXPORT(QuantizeAny);

void QuantizeRow(const float* x, int64_t n, const QuantizeParameters& parameters, bool is_signed,
                 uint8_t* y) {
  HWY_DYNAMIC_DISPATCH(QuantizeAny)(x, n, parameters, is_signed, y);
}

}  // namespace pagefuse::onnx_ops
#endif  // HWY_ONCE
