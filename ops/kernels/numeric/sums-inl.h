// SPDX-License-Identifier: Apache-2.0
// Sums whose order does not show in the result. Include inside a file that hwy/foreach_target.h
// recompiles.
#if defined(PAGEFUSE_KERNELS_NUMERIC_SUMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAGEFUSE_KERNELS_NUMERIC_SUMS_INL_H_
#undef PAGEFUSE_KERNELS_NUMERIC_SUMS_INL_H_
#else
#define PAGEFUSE_KERNELS_NUMERIC_SUMS_INL_H_
#endif

#include <cstddef>
#include <type_traits>

#include "hwy/highway.h"

#include "pagefuse/ops/kernels/numeric/convert-inl.h"
#include "pagefuse/ops/kernels/numeric/float_pairs-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Of x[0, n), float, float16 or bfloat16: added in double, so that kernels and references, which
// add in other orders, all but always round to the same float.
template <typename T>
HWY_INLINE float SumOfSquares(const T* HWY_RESTRICT x, size_t n) {
  const hn::ScalableTag<double> dd;
  const hn::Rebind<float, decltype(dd)> df;
  const size_t lanes = hn::Lanes(dd);
  constexpr size_t kSums = 4;  // one would wait for itself
  hn::Vec<decltype(dd)> sums[kSums];
  for (auto& sum : sums) sum = hn::Zero(dd);
  size_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  if constexpr (std::is_same_v<T, Bfloat16>) {  // fewer steps two to a lane
    const hn::ScalableTag<float> whole;
    const auto add = [&](size_t k, auto v) HWY_ATTR {
      const auto lower = hn::PromoteTo(dd, hn::LowerHalf(df, v));
      const auto upper = hn::PromoteTo(dd, hn::UpperHalf(df, v));
      sums[k] = hn::MulAdd(lower, lower, sums[k]);
      sums[k + 1] = hn::MulAdd(upper, upper, sums[k + 1]);
    };
    for (; i + 4 * lanes <= n; i += 4 * lanes) {
      hn::Vec<decltype(whole)> even, odd;
      LoadBfloat16Pairs(whole, x + i, even, odd);
      add(0, even);
      add(2, odd);
    }
  }
#endif
  for (; i + kSums * lanes <= n; i += kSums * lanes) {
    for (size_t k = 0; k < kSums; ++k) {
      const auto v = hn::PromoteTo(dd, LoadToFloat(df, x + i + k * lanes));
      sums[k] = hn::MulAdd(v, v, sums[k]);
    }
  }
  const auto sum = hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3]));
  double total = hn::GetLane(hn::SumOfLanes(dd, sum));
  for (; i < n; ++i) {
    const auto v = static_cast<double>(static_cast<float>(x[i]));
    total += v * v;
  }
  return static_cast<float>(total);
}

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#endif  // toggle
