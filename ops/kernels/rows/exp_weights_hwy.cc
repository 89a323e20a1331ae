// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/ops/kernels/rows/exp_weights_hwy.cc"
#include "pagefuse/ops/kernels/rows/exp_weights_hwy.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse::onnx_ops {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DD = hn::ScalableTag<double>;
using DU = hn::RebindToUnsigned<DD>;
using DF = hn::Rebind<float, DD>;
using VD = hn::Vec<DD>;
using VU = hn::Vec<DU>;

// a * b + c with one rounding. Highway's MulAdd rounds twice where the target has no such
// instruction: there the C library's is taken, lane by lane.
HWY_INLINE VD Fused(VD a, VD b, VD c) {
#if HWY_NATIVE_FMA
  return hn::MulAdd(a, b, c);
#else
  const DD d;
  HWY_ALIGN double x[hn::MaxLanes(DD())], y[hn::MaxLanes(DD())], z[hn::MaxLanes(DD())];
  hn::Store(a, d, x);
  hn::Store(b, d, y);
  hn::Store(c, d, z);
  for (size_t i = 0; i < hn::Lanes(d); ++i) z[i] = std::fma(x[i], y[i], z[i]);
  return hn::Load(d, z);
#endif
}

// Vectors that are computed side by side, since each waits for one multiply-add after the other.
constexpr int kBeside = 4;

// e^r for |r| <= ln 2 / 2.
HWY_INLINE void SmallExp(const VD (&r)[kBeside], VD (&sum)[kBeside]) {
  const DD d;
  constexpr ExpNumbers kNumbers;
  for (VD& s : sum) s = hn::Set(d, kNumbers.one_by_factorial[0]);
  for (int i = 1; i < ExpNumbers::kTerms; ++i) {
    const VD next = hn::Set(d, kNumbers.one_by_factorial[i]);
    for (int v = 0; v < kBeside; ++v) sum[v] = Fused(sum[v], r[v], next);
  }
}

// e^x = 2^k e^(x - k ln 2).
HWY_INLINE void WeightsOf(const float* logits, const WeightScale& scale, VU (&weights)[kBeside]) {
  const DD d;
  const DU du;
  const DF df;
  constexpr ExpNumbers kNumbers;
  const VD round = hn::Set(d, kNumbers.round);
  VD r[kBeside], e[kBeside];
  for (int v = 0; v < kBeside; ++v) {
    const VD logit = hn::PromoteTo(d, hn::LoadU(df, logits + v * hn::Lanes(d)));
    VD x = hn::Sub(logit, hn::Set(d, scale.largest));
    x = hn::Max(hn::Mul(x, hn::Set(d, scale.inverse_temperature)), hn::Set(d, kNumbers.least));
    const VD shifted = Fused(x, hn::Set(d, kNumbers.one_by_ln2), round);
    const VD k = hn::Sub(shifted, round);
    r[v] = Fused(k, hn::Set(d, kNumbers.minus_ln2), x);
    r[v] = Fused(k, hn::Set(d, kNumbers.minus_ln2_rest), r[v]);
    weights[v] = hn::ShiftLeft<52>(hn::BitCast(du, shifted));
  }
  SmallExp(r, e);
  for (int v = 0; v < kBeside; ++v) {
    const VD weight = hn::BitCast(d, hn::Add(hn::BitCast(du, e[v]), weights[v]));
    const VU rounded = hn::BitCast(du, hn::Add(weight, hn::Set(d, 0x1p52)));
    weights[v] = hn::And(rounded, hn::Set(du, (uint64_t{1} << 52) - 1));
  }
}

// The sum of the weights of a row; stores them where `to` is not null.
template <bool kStores>
HWY_INLINE uint64_t Weigh(const float* logits, int64_t n, const WeightScale& scale, uint64_t* to) {
  const DU du;
  constexpr auto kMost = static_cast<int64_t>(kBeside * hn::MaxLanes(DU()));
  const auto lanes = static_cast<int64_t>(hn::Lanes(du)), step = kBeside * lanes;
  HWY_ALIGN float rest[kMost];
  HWY_ALIGN uint64_t last[kMost];
  VU weights[kBeside], sum = hn::Zero(du);
  for (int64_t i = 0; i < n; i += step) {
    const bool whole = i + step <= n;
    if (!whole) {
      std::fill_n(rest, step, -std::numeric_limits<float>::infinity());
      std::copy(logits + i, logits + n, rest);
    }
    WeightsOf(whole ? logits + i : rest, scale, weights);
    for (int v = 0; v < kBeside; ++v) {
      sum = hn::Add(sum, weights[v]);
      if (kStores) hn::StoreU(weights[v], du, (whole ? to + i : last) + v * lanes);
    }
    if (kStores && !whole) std::copy_n(last, n - i, to + i);
  }
  hn::Store(sum, du, last);
  return std::accumulate(last, last + lanes, uint64_t{0});
}

uint64_t SumOfWeights(const float* logits, int64_t n, const WeightScale& scale) {
  return Weigh<false>(logits, n, scale, nullptr);
}
uint64_t StoreWeights(const float* logits, int64_t n, const WeightScale& scale, uint64_t* to) {
  return Weigh<true>(logits, n, scale, to);
}

// Which of x[0, 64) are `least` or more, the first in the lowest bit.
HWY_INLINE uint64_t BitsAtLeast(const float* x, float least) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  uint64_t bits = 0;
  for (size_t i = 0; i < 64; i += lanes) {
    uint8_t bytes[8];
    hn::StoreMaskBits(d, hn::Ge(hn::LoadU(d, x + i), hn::Set(d, least)), bytes);
    for (size_t b = 0; b < (lanes + 7) / 8; ++b) bits |= uint64_t{bytes[b]} << (i + 8 * b);
  }
  return bits;
}

int64_t TakeAtLeast(const float* x, int64_t n, float least, int32_t first, int32_t* indices) {
  int64_t taken = 0, i = 0;
  for (; i + 64 <= n; i += 64) {
    for (uint64_t bits = BitsAtLeast(x + i, least); bits != 0; bits &= bits - 1) {
      indices[taken++] = static_cast<int32_t>(first + i + std::countr_zero(bits));
    }
  }
  for (; i < n; ++i) {
    if (x[i] >= least) indices[taken++] = static_cast<int32_t>(first + i);
  }
  return taken;
}

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse::onnx_ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagefuse::onnx_ops {

HWY_EXPORT(SumOfWeights);
HWY_EXPORT(StoreWeights);
HWY_EXPORT(TakeAtLeast);

uint64_t SumExpWeights(const float* logits, int64_t n, const WeightScale& scale) {
  return HWY_DYNAMIC_DISPATCH(SumOfWeights)(logits, n, scale);
}
uint64_t ExpWeights(const float* logits, int64_t n, const WeightScale& scale, uint64_t* weights) {
  return HWY_DYNAMIC_DISPATCH(StoreWeights)(logits, n, scale, weights);
}
int64_t IndicesAtLeast(const float* x, int64_t n, float least, int32_t first, int32_t* indices) {
  return HWY_DYNAMIC_DISPATCH(TakeAtLeast)(x, n, least, first, indices);
}

}  // namespace pagefuse::onnx_ops
#endif  // HWY_ONCE
