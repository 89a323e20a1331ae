// SPDX-License-Identifier: Apache-2.0
// Float32 functions on Highway vectors that Highway's own math library lacks, or has on part of the
// range only. Per target: included once for each.
#if defined(PAGEFUSE_KERNELS_ROWS_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAGEFUSE_KERNELS_ROWS_MATH_INL_H_
#undef PAGEFUSE_KERNELS_ROWS_MATH_INL_H_
#else
#define PAGEFUSE_KERNELS_ROWS_MATH_INL_H_
#endif

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse::onnx_ops {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// e^x for every float: 0 at -infinity, infinity from 88.73 on, NaN for NaN. 1 ulp.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V FullExp(D d, V x) {
  // hn::Exp is wrong above 104, where the result is infinity anyway, and may lose NaN.
  const V y = hn::Exp(d, hn::Min(x, hn::Set(d, 104.0f)));
  return hn::IfThenElse(hn::IsNaN(x), x, y);
}

// log(x) for every float: -infinity at 0, NaN below it and for NaN. 4 ulp.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V FullLog(D d, V x) {
  const V infinity = hn::Inf(d);
  V y = hn::Log(d, x);
  y = hn::IfThenElse(hn::Eq(x, hn::Zero(d)), hn::Neg(infinity), y);
  y = hn::IfThenElse(hn::Eq(x, infinity), x, y);
  return hn::IfThenElse(hn::Or(hn::IsNaN(x), hn::Lt(x, hn::Zero(d))), hn::NaN(d), y);
}

// 1 / (1 + e^-x). e^-|x| does not overflow: the small side is e^-|x| / (1 + e^-|x|).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Sigmoid(D d, V x) {
  const V one = hn::Set(d, 1.0f);
  const V e = FullExp(d, hn::Neg(hn::Abs(x)));
  return hn::Div(hn::IfThenElse(hn::Lt(x, hn::Zero(d)), e, one), hn::Add(one, e));
}

// tanh(x), NaN for NaN. 4 ulp.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V FullTanh(D d, V x) {
  // Beyond 10 the result rounds to 1.
  const V limit = hn::Set(d, 10.0f);
  const V clamped = hn::Max(hn::Min(x, limit), hn::Neg(limit));
  return hn::IfThenElse(hn::IsNaN(x), x, hn::Tanh(d, clamped));
}

// erf(x), NaN for NaN. 3 ulp. Up to 1: x P(x^2); above: 1 - e^-Q(|x|), 1 from 4 on. P and Q are
// Chebyshev fits of erf(x) / x on [0, 1] and of -log(erfc(x)) on [1, 4].
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Erf(D d, V x) {
  const V magnitude = hn::Min(hn::Abs(x), hn::Set(d, 4.0f));
  const V square = hn::Mul(x, x);
  V p = hn::Set(d, -9.67357e-06f);
  p = hn::MulAdd(p, square, hn::Set(d, 0.00011268247f));
  p = hn::MulAdd(p, square, hn::Set(d, -0.0008484396f));
  p = hn::MulAdd(p, square, hn::Set(d, 0.0052210535f));
  p = hn::MulAdd(p, square, hn::Set(d, -0.026865438f));
  p = hn::MulAdd(p, square, hn::Set(d, 0.11283783f));
  p = hn::MulAdd(p, square, hn::Set(d, -0.37612638f));
  p = hn::MulAdd(p, square, hn::Set(d, 1.1283792f));
  V q = hn::Set(d, 6.582874e-08f);
  q = hn::MulAdd(q, magnitude, hn::Set(d, -3.0952083e-06f));
  q = hn::MulAdd(q, magnitude, hn::Set(d, 6.006883e-05f));
  q = hn::MulAdd(q, magnitude, hn::Set(d, -0.0006733377f));
  q = hn::MulAdd(q, magnitude, hn::Set(d, 0.0050210455f));
  q = hn::MulAdd(q, magnitude, hn::Set(d, -0.026999498f));
  q = hn::MulAdd(q, magnitude, hn::Set(d, 0.11090742f));
  q = hn::MulAdd(q, magnitude, hn::Set(d, 0.63108885f));
  q = hn::MulAdd(q, magnitude, hn::Set(d, 1.1306045f));
  q = hn::MulAdd(q, magnitude, hn::Set(d, -0.0004005007f));
  const V large = hn::CopySign(hn::Sub(hn::Set(d, 1.0f), hn::Exp(d, hn::Neg(q))), x);
  const V y = hn::IfThenElse(hn::Lt(magnitude, hn::Set(d, 1.0f)), hn::Mul(x, p), large);
  return hn::IfThenElse(hn::IsNaN(x), x, y);
}

// The larger (smaller) of two, NaN if either is: hn::Max differs there between targets.
template <class V>
HWY_INLINE V MaxOrNaN(V a, V b) {
  return hn::IfThenElse(hn::Or(hn::IsNaN(a), hn::IsNaN(b)), hn::Add(a, b), hn::Max(a, b));
}
template <class V>
HWY_INLINE V MinOrNaN(V a, V b) {
  return hn::IfThenElse(hn::Or(hn::IsNaN(a), hn::IsNaN(b)), hn::Add(a, b), hn::Min(a, b));
}

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse::onnx_ops
HWY_AFTER_NAMESPACE();

#endif  // toggle
