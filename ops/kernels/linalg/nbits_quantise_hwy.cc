// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include "pagefuse/ops/kernels/linalg/nbits_quantise.h"
#include "pagefuse/ops/kernels/numeric/small_float.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/ops/kernels/linalg/nbits_quantise_hwy.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// The number of the largest magnitude, the positive one of two; NaN if one is NaN or infinite.
HWY_INLINE float ExtremeOf(const float* w) {
  const hn::ScalableTag<float> d;
  auto most = hn::LoadU(d, w), least = most, check = hn::Zero(d);
  for (int64_t i = 0; i < kWeightBlock; i += static_cast<int64_t>(hn::Lanes(d))) {
    const auto v = hn::LoadU(d, w + i);
    most = hn::Max(most, v);
    least = hn::Min(least, v);
    check = hn::Add(check, hn::Mul(v, hn::Zero(d)));
  }
  if (hn::GetLane(hn::SumOfLanes(d, check)) != 0) return std::numeric_limits<float>::quiet_NaN();
  const float high = hn::GetLane(hn::MaxOfLanes(d, most));
  const float low = hn::GetLane(hn::MinOfLanes(d, least));
  return high >= -low ? high : low;
}

// Rounding is off by 2^-11 of the scale at most: of the largest number by an eighth of what codes of
// 8 bits may be off.
HWY_INLINE float RoundScale(float scale) {
  constexpr float kLeastNormal = 1.0f / (1 << 14), kMost = 65504;
  const bool normal = std::abs(scale) >= kLeastNormal && std::abs(scale) <= kMost;
  return normal ? static_cast<float>(Float16(scale)) : scale;
}

// Codes one a byte; returns the scale.
HWY_INLINE float RoundWeights(const float* w, int bits, uint8_t* codes) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::Rebind<uint8_t, decltype(d)> d8;
  const float levels = bits == 4 ? 8 : 128;
  const float extreme = ExtremeOf(w);
  // Negated where there are no numbers, too.
  const bool usual = std::abs(extreme) >= levels * std::numeric_limits<float>::min();
  const auto factor = hn::Set(d, usual ? -levels / extreme : 0);
  const auto low = hn::Set(d, -levels), high = hn::Set(d, levels - 1);
  auto products = hn::Zero(d), squares = hn::Zero(d);
  for (int64_t i = 0; i < kWeightBlock; i += static_cast<int64_t>(hn::Lanes(d))) {
    const auto v = usual ? hn::LoadU(d, w + i) : hn::Zero(d);
    const auto q = hn::Min(hn::Max(hn::Round(hn::Mul(v, factor)), low), high);
    products = hn::MulAdd(v, q, products);
    squares = hn::MulAdd(q, q, squares);
    hn::StoreU(hn::DemoteTo(d8, hn::ConvertTo(di, hn::Add(q, hn::Set(d, levels)))), d8, codes + i);
  }
  if (std::isnan(extreme)) return extreme;
  if (!usual) return 0;
  return RoundScale(hn::GetLane(hn::SumOfLanes(d, products)) /
                    hn::GetLane(hn::SumOfLanes(d, squares)));
}

void QuantiseBlocks(const float* w, int64_t count, int bits, const NBitsBlocks& to) {
  for (int64_t b = 0; b < count; ++b) {
    uint8_t codes[kWeightBlock];
    to.scales[b * to.scale_stride] = RoundWeights(w + b * kWeightBlock, bits, codes);
    uint8_t* out = to.codes + b * to.code_stride;
    const int per_byte = 8 / bits;
    for (int64_t i = 0; i < kWeightBlock / per_byte; ++i) {
      out[i] = bits == 8 ? codes[i] : static_cast<uint8_t>(codes[2 * i] | codes[2 * i + 1] << 4);
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagefuse {

HWY_EXPORT(QuantiseBlocks);

void QuantiseNBits(const float* w, int64_t count, int bits, const NBitsBlocks& to) {
  HWY_DYNAMIC_DISPATCH(QuantiseBlocks)(w, count, bits, to);
}

}  // namespace pagefuse
#endif  // HWY_ONCE
