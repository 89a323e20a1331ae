// SPDX-License-Identifier: Apache-2.0
// What is left over behind whole vectors is multiplied and added in plain C++, fused where the
// target can.
#pragma GCC optimize("fp-contract=fast")

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/ops/kernels/rows/rows_hwy.cc"
#include "pagefuse/ops/kernels/rows/rows_hwy.h"

#include <cmath>
#include <limits>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "pagefuse/ops/kernels/rows/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse::onnx_ops {
namespace HWY_NAMESPACE {

// Folds f(accumulator, x[i]) over the row in four independent accumulators, `start` each, and
// combines them.
template <class F, class Combine, class Reduce>
HWY_INLINE float Fold(const float* x, int64_t n, float start, const F& f, const Combine& combine,
                      const Reduce& reduce) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto s0 = hn::Set(d, start), s1 = s0, s2 = s0, s3 = s0;
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    s0 = f(s0, hn::LoadU(d, x + i));
    s1 = f(s1, hn::LoadU(d, x + i + lanes));
    s2 = f(s2, hn::LoadU(d, x + i + 2 * lanes));
    s3 = f(s3, hn::LoadU(d, x + i + 3 * lanes));
  }
  for (; i + lanes <= n; i += lanes) s0 = f(s0, hn::LoadU(d, x + i));
  s0 = combine(combine(s0, s1), combine(s2, s3));
  const hn::CappedTag<float, 1> one;
  auto rest = hn::Set(one, start);
  for (; i < n; ++i) rest = f(rest, hn::Set(one, x[i]));
  return hn::GetLane(combine(hn::Set(one, reduce(d, s0)), rest));
}

float SumOf(const float* x, int64_t n) {
  const auto add = [](auto s, auto v) HWY_ATTR { return hn::Add(s, v); };
  return Fold(x, n, 0.0f, add, add,
              [](auto d, auto s) HWY_ATTR { return hn::GetLane(hn::SumOfLanes(d, s)); });
}

float SumOfSquaresOf(const float* x, int64_t n) {
  return Fold(
      x, n, 0.0f, [](auto s, auto v) HWY_ATTR { return hn::MulAdd(v, v, s); },
      [](auto s, auto v) HWY_ATTR { return hn::Add(s, v); },
      [](auto d, auto s) HWY_ATTR { return hn::GetLane(hn::SumOfLanes(d, s)); });
}

float SumOfAbsOf(const float* x, int64_t n) {
  return Fold(
      x, n, 0.0f, [](auto s, auto v) HWY_ATTR { return hn::Add(s, hn::Abs(v)); },
      [](auto s, auto v) HWY_ATTR { return hn::Add(s, v); },
      [](auto d, auto s) HWY_ATTR { return hn::GetLane(hn::SumOfLanes(d, s)); });
}

float ProductOf(const float* x, int64_t n) {
  const auto multiply = [](auto s, auto v) HWY_ATTR { return hn::Mul(s, v); };
  return Fold(x, n, 1.0f, multiply, multiply, [](auto d, auto s) HWY_ATTR {
    HWY_ALIGN float lane[hn::MaxLanes(d)];
    hn::Store(s, d, lane);
    float product = lane[0];
    for (size_t i = 1; i < hn::Lanes(d); ++i) product *= lane[i];
    return product;
  });
}

// Max or min of the lanes; NaN if a lane is, which MaxOfLanes does not promise.
template <class D, class V, class F>
HWY_INLINE float ExtremeOfLanes(D d, V v, const F& f) {
  HWY_ALIGN float lane[hn::MaxLanes(d)];
  hn::Store(v, d, lane);
  const hn::CappedTag<float, 1> one;
  auto best = hn::Set(one, lane[0]);
  for (size_t i = 1; i < hn::Lanes(d); ++i) best = f(best, hn::Set(one, lane[i]));
  return hn::GetLane(best);
}

float MaxOf(const float* x, int64_t n) {
  const auto max = [](auto s, auto v) HWY_ATTR { return MaxOrNaN(s, v); };
  return Fold(x, n, -std::numeric_limits<float>::infinity(), max, max,
              [&](auto d, auto s) HWY_ATTR { return ExtremeOfLanes(d, s, max); });
}

float MinOf(const float* x, int64_t n) {
  const auto min = [](auto s, auto v) HWY_ATTR { return MinOrNaN(s, v); };
  return Fold(x, n, std::numeric_limits<float>::infinity(), min, min,
              [&](auto d, auto s) HWY_ATTR { return ExtremeOfLanes(d, s, min); });
}

// y = e^(x - max) where `write`; returns the sum.
template <bool write>
HWY_INLINE float ExpShifted(const float* x, float max, float* y, int64_t n) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto shift = hn::Set(d, max);
  auto sum = hn::Zero(d);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto e = FullExp(d, hn::Sub(hn::LoadU(d, x + i), shift));
    if (write) hn::StoreU(e, d, y + i);
    sum = hn::Add(sum, e);
  }
  float total = hn::GetLane(hn::SumOfLanes(d, sum));
  const hn::CappedTag<float, 1> one;
  for (; i < n; ++i) {
    const float e = hn::GetLane(FullExp(one, hn::Set(one, x[i] - max)));
    if (write) y[i] = e;
    total += e;
  }
  return total;
}

void Softmax(const float* x, float* y, int64_t n) {
  const float sum = ExpShifted<true>(x, MaxOf(x, n), y, n);
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto all = hn::Set(d, sum);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(hn::Div(hn::LoadU(d, y + i), all), d, y + i);
  for (; i < n; ++i) y[i] /= sum;
}

void LogSoftmax(const float* x, float* y, int64_t n) {
  const float max = MaxOf(x, n);
  const float log_sum = std::log(ExpShifted<false>(x, max, y, n));
  for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - max) - log_sum;
}

float LogSumExp(const float* x, int64_t n) {
  const float max = MaxOf(x, n);
  if (!std::isfinite(max)) return max;
  return max + std::log(ExpShifted<false>(x, max, nullptr, n));
}

// Index of `value` in x[0, n), which has it: the first or the last.
int64_t IndexOf(const float* x, int64_t n, float value, bool last) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto wanted = hn::Set(d, value);
  if (last) {
    int64_t end = n;
    for (; end % lanes != 0; --end) {
      if (x[end - 1] == value) return end - 1;
    }
    while (hn::AllFalse(d, hn::Eq(hn::LoadU(d, x + end - lanes), wanted))) end -= lanes;
    while (x[end - 1] != value) --end;
    return end - 1;
  }
  int64_t i = 0;
  while (i + lanes <= n && hn::AllFalse(d, hn::Eq(hn::LoadU(d, x + i), wanted))) i += lanes;
  while (x[i] != value) ++i;
  return i;
}

// Index of the element than which none is better.
template <class Better>
HWY_INLINE int64_t IndexOfBest(const float* x, int64_t n, bool last, const Better& better) {
  if (std::isnan(x[0])) return 0;
  const auto best = [&](auto a, auto b) HWY_ATTR { return hn::IfThenElse(better(b, a), b, a); };
  const float value = Fold(x, n, x[0], best, best,
                           [&](auto d, auto s) HWY_ATTR { return ExtremeOfLanes(d, s, best); });
  return IndexOf(x, n, value, last);
}

int64_t IndexOfMax(const float* x, int64_t n, bool last) {
  return IndexOfBest(x, n, last, [](auto a, auto b) HWY_ATTR { return hn::Gt(a, b); });
}

int64_t IndexOfMin(const float* x, int64_t n, bool last) {
  return IndexOfBest(x, n, last, [](auto a, auto b) HWY_ATTR { return hn::Lt(a, b); });
}

void Scale(const float* x, float factor, const float* scale, float* y, int64_t n) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto all = hn::Set(d, factor);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(hn::Mul(hn::Mul(hn::LoadU(d, x + i), all), hn::LoadU(d, scale + i)), d, y + i);
  }
  for (; i < n; ++i) y[i] = x[i] * factor * scale[i];
}

float Dot(const float* a, const float* b, int64_t n) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    s0 = hn::MulAdd(hn::LoadU(d, a + i), hn::LoadU(d, b + i), s0);
    s1 = hn::MulAdd(hn::LoadU(d, a + i + lanes), hn::LoadU(d, b + i + lanes), s1);
    s2 = hn::MulAdd(hn::LoadU(d, a + i + 2 * lanes), hn::LoadU(d, b + i + 2 * lanes), s2);
    s3 = hn::MulAdd(hn::LoadU(d, a + i + 3 * lanes), hn::LoadU(d, b + i + 3 * lanes), s3);
  }
  for (; i + lanes <= n; i += lanes) s0 = hn::MulAdd(hn::LoadU(d, a + i), hn::LoadU(d, b + i), s0);
  float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
  for (; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

void AddScaled(const float* x, float factor, float* y, int64_t n) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto all = hn::Set(d, factor);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(hn::MulAdd(all, hn::LoadU(d, x + i), hn::LoadU(d, y + i)), d, y + i);
  }
  for (; i < n; ++i) y[i] += factor * x[i];
}

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse::onnx_ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagefuse::onnx_ops {

HWY_EXPORT(SumOf);
HWY_EXPORT(SumOfSquaresOf);
HWY_EXPORT(SumOfAbsOf);
HWY_EXPORT(ProductOf);
HWY_EXPORT(MaxOf);
HWY_EXPORT(MinOf);
HWY_EXPORT(Softmax);
HWY_EXPORT(LogSoftmax);
HWY_EXPORT(LogSumExp);
HWY_EXPORT(IndexOfMax);
HWY_EXPORT(IndexOfMin);
HWY_EXPORT(Scale);
HWY_EXPORT(Dot);
HWY_EXPORT(AddScaled);

float SumOfRow(const float* x, int64_t n) { return HWY_DYNAMIC_DISPATCH(SumOf)(x, n); }
float SumOfSquaresOfRow(const float* x, int64_t n) {
  return HWY_DYNAMIC_DISPATCH(SumOfSquaresOf)(x, n);
}
float SumOfAbsRow(const float* x, int64_t n) { return HWY_DYNAMIC_DISPATCH(SumOfAbsOf)(x, n); }
float ProductOfRow(const float* x, int64_t n) { return HWY_DYNAMIC_DISPATCH(ProductOf)(x, n); }
float MaxOfRow(const float* x, int64_t n) { return HWY_DYNAMIC_DISPATCH(MaxOf)(x, n); }
float MinOfRow(const float* x, int64_t n) { return HWY_DYNAMIC_DISPATCH(MinOf)(x, n); }
void SoftmaxRow(const float* x, float* y, int64_t n) { HWY_DYNAMIC_DISPATCH(Softmax)(x, y, n); }
void LogSoftmaxRow(const float* x, float* y, int64_t n) {
  HWY_DYNAMIC_DISPATCH(LogSoftmax)(x, y, n);
}
float LogSumExpRow(const float* x, int64_t n) { return HWY_DYNAMIC_DISPATCH(LogSumExp)(x, n); }
int64_t IndexOfMaxRow(const float* x, int64_t n, bool last) {
  return HWY_DYNAMIC_DISPATCH(IndexOfMax)(x, n, last);
}
int64_t IndexOfMinRow(const float* x, int64_t n, bool last) {
  return HWY_DYNAMIC_DISPATCH(IndexOfMin)(x, n, last);
}
void ScaleRow(const float* x, float factor, const float* scale, float* y, int64_t n) {
  HWY_DYNAMIC_DISPATCH(Scale)(x, factor, scale, y, n);
}
float DotRow(const float* a, const float* b, int64_t n) {
  return HWY_DYNAMIC_DISPATCH(Dot)(a, b, n);
}
void AddScaledRow(const float* x, float factor, float* y, int64_t n) {
  HWY_DYNAMIC_DISPATCH(AddScaled)(x, factor, y, n);
}

}  // namespace pagefuse::onnx_ops
#endif  // HWY_ONCE
