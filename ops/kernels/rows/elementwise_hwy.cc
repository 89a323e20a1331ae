// SPDX-License-Identifier: Apache-2.0
// Highway's Tanh and Expm1 leave it to the compiler to fuse products and sums; so their results are
// what they are where it does.
#pragma GCC optimize("fp-contract=fast")

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/ops/kernels/rows/elementwise_hwy.cc"
#include "pagefuse/ops/kernels/rows/elementwise_hwy.h"

#include <cmath>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "pagefuse/ops/kernels/rows/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse::onnx_ops {
namespace HWY_NAMESPACE {

// y[i] = f(d, x[i]). The last vector is padded with zeros, of which f must make something harmless.
template <class F>
HWY_INLINE void Map(const float* x, float* y, int64_t n, const F& f) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(f(d, hn::LoadU(d, x + i)), d, y + i);
  if (i == n) return;
  HWY_ALIGN float last[hn::MaxLanes(d)] = {};
  for (int64_t k = 0; i + k < n; ++k) last[k] = x[i + k];
  hn::Store(f(d, hn::Load(d, last)), d, last);
  for (int64_t k = 0; i + k < n; ++k) y[i + k] = last[k];
}

// Highway's sine and cosine reduce their argument exactly up to here.
constexpr float kMaxAngle = 39000.0f;

// Map in blocks; blocks with a larger angle (or NaN) go to the scalar function.
template <class F>
HWY_INLINE void MapAngles(const float* x, float* y, int64_t n, float (*scalar)(float), const F& f) {
  constexpr int64_t kBlock = 64;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t count = HWY_MIN(kBlock, n - begin);
    bool small = true;
    for (int64_t i = 0; i < count; ++i) small = small && std::fabs(x[begin + i]) <= kMaxAngle;
    if (small) {
      Map(x + begin, y + begin, count, f);
    } else {
      for (int64_t i = 0; i < count; ++i) y[begin + i] = scalar(x[begin + i]);
    }
  }
}

void Neg(const float* x, float* y, int64_t n, float) {
  Map(x, y, n, [](auto, auto v) HWY_ATTR { return hn::Neg(v); });
}
void Abs(const float* x, float* y, int64_t n, float) {
  Map(x, y, n, [](auto, auto v) HWY_ATTR { return hn::Abs(v); });
}
void Sqrt(const float* x, float* y, int64_t n, float) {
  Map(x, y, n, [](auto, auto v) HWY_ATTR { return hn::Sqrt(v); });
}
void Reciprocal(const float* x, float* y, int64_t n, float) {
  Map(x, y, n, [](auto d, auto v) HWY_ATTR { return hn::Div(hn::Set(d, 1.0f), v); });
}
void Square(const float* x, float* y, int64_t n, float) {
  Map(x, y, n, [](auto, auto v) HWY_ATTR { return hn::Mul(v, v); });
}
void Cube(const float* x, float* y, int64_t n, float) {
  Map(x, y, n, [](auto, auto v) HWY_ATTR { return hn::Mul(hn::Mul(v, v), v); });
}
void Relu(const float* x, float* y, int64_t n, float) {
  Map(x, y, n, [](auto d, auto v) HWY_ATTR {
    return hn::IfThenElse(hn::Lt(v, hn::Zero(d)), hn::Zero(d), v);
  });
}
void LeakyRelu(const float* x, float* y, int64_t n, float alpha) {
  Map(x, y, n, [alpha](auto d, auto v) HWY_ATTR {
    return hn::IfThenElse(hn::Lt(v, hn::Zero(d)), hn::Mul(v, hn::Set(d, alpha)), v);
  });
}
void Exponential(const float* x, float* y, int64_t n, float) {
  Map(x, y, n, [](auto d, auto v) HWY_ATTR { return FullExp(d, v); });
}
void Sine(const float* x, float* y, int64_t n, float) {
  MapAngles(x, y, n, std::sin, [](auto d, auto v) HWY_ATTR { return hn::Sin(d, v); });
}
void Cosine(const float* x, float* y, int64_t n, float) {
  MapAngles(x, y, n, std::cos, [](auto d, auto v) HWY_ATTR { return hn::Cos(d, v); });
}
void Tangent(const float* x, float* y, int64_t n, float) {
  Map(x, y, n, [](auto d, auto v) HWY_ATTR { return FullTanh(d, v); });
}
void Logistic(const float* x, float* y, int64_t n, float) {
  Map(x, y, n, [](auto d, auto v) HWY_ATTR { return Sigmoid(d, v); });
}
void Swish(const float* x, float* y, int64_t n, float alpha) {
  Map(x, y, n, [alpha](auto d, auto v) HWY_ATTR {
    return hn::Mul(v, Sigmoid(d, hn::Mul(v, hn::Set(d, alpha))));
  });
}
void ErrorFunction(const float* x, float* y, int64_t n, float) {
  Map(x, y, n, [](auto d, auto v) HWY_ATTR { return Erf(d, v); });
}
void Gelu(const float* x, float* y, int64_t n, float) {
  Map(x, y, n, [](auto d, auto v) HWY_ATTR {
    const auto half = hn::Mul(v, hn::Set(d, 0.5f));
    return hn::MulAdd(half, Erf(d, hn::Mul(v, hn::Set(d, 0.70710678f))), half);
  });
}
void GeluTanh(const float* x, float* y, int64_t n, float) {
  Map(x, y, n, [](auto d, auto v) HWY_ATTR {
    const auto half = hn::Mul(v, hn::Set(d, 0.5f));
    const auto cubic = hn::MulAdd(hn::Mul(hn::Mul(v, v), v), hn::Set(d, 0.044715f), v);
    return hn::MulAdd(half, FullTanh(d, hn::Mul(cubic, hn::Set(d, 0.79788456f))), half);
  });
}

void Floor(const float* x, float* y, int64_t n, float) {
  Map(x, y, n, [](auto, auto v) HWY_ATTR { return hn::Floor(v); });
}
void Ceil(const float* x, float* y, int64_t n, float) {
  Map(x, y, n, [](auto, auto v) HWY_ATTR { return hn::Ceil(v); });
}
void Round(const float* x, float* y, int64_t n, float) {
  Map(x, y, n, [](auto, auto v) HWY_ATTR { return hn::Round(v); });
}
void Logarithm(const float* x, float* y, int64_t n, float) {
  Map(x, y, n, [](auto d, auto v) HWY_ATTR { return FullLog(d, v); });
}
void Elu(const float* x, float* y, int64_t n, float alpha) {
  Map(x, y, n, [alpha](auto d, auto v) HWY_ATTR {
    const auto below = hn::Mul(hn::Set(d, alpha), hn::Expm1(d, hn::Min(v, hn::Zero(d))));
    return hn::IfThenElse(hn::Lt(v, hn::Zero(d)), below, v);
  });
}
void Softplus(const float* x, float* y, int64_t n, float) {
  Map(x, y, n, [](auto d, auto v) HWY_ATTR {
    const auto e = FullExp(d, hn::Neg(hn::Abs(v)));
    const auto sum = hn::Add(hn::Max(v, hn::Zero(d)), hn::Log1p(d, e));
    return hn::IfThenElse(hn::IsNaN(v), v, sum);
  });
}
// tanh(log(1 + e^v)) = (2 e^v + e^2v) / (2 + 2 e^v + e^2v), by e^-|v|, which does not overflow.
void Mish(const float* x, float* y, int64_t n, float) {
  Map(x, y, n, [](auto d, auto v) HWY_ATTR {
    const auto e = FullExp(d, hn::Neg(hn::Abs(v)));
    const auto one = hn::Set(d, 1.0f), two = hn::Set(d, 2.0f);
    const auto negative = hn::Lt(v, hn::Zero(d));
    const auto above =
        hn::IfThenElse(negative, hn::Mul(e, hn::Add(e, two)), hn::MulAdd(two, e, one));
    const auto rest = hn::IfThenElse(negative, two, hn::Mul(two, hn::Mul(e, e)));
    // -infinity times 0 stays NaN, as in the formula.
    return hn::Mul(v, hn::Div(above, hn::Add(above, rest)));
  });
}
// v^0.5 is the root but for -0 and -infinity.
void PowHalf(const float* x, float* y, int64_t n, float) {
  Map(x, y, n, [](auto d, auto v) HWY_ATTR {
    const auto infinity = hn::Inf(d);
    const auto root = hn::Sqrt(hn::Add(v, hn::Zero(d)));
    return hn::IfThenElse(hn::Eq(v, hn::Neg(infinity)), infinity, root);
  });
}

// e^(exponent * log(x)) in double, which leaves one rounding; x is positive and finite.
HWY_INLINE void PowOfPositives(const float* x, float* y, int64_t n, double exponent) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> df;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  // Floats end before either.
  const auto low = hn::Set(d, -200.0), high = hn::Set(d, 100.0);
  const auto power = [&](auto v) HWY_ATTR {
    const auto log = hn::Mul(hn::Set(d, exponent), hn::Log(d, hn::PromoteTo(d, v)));
    return hn::DemoteTo(df, hn::Exp(d, hn::Min(hn::Max(log, low), high)));
  };
  HWY_ALIGN float last[hn::MaxLanes(d)];
  for (int64_t i = 0; i < n; i += lanes) {
    const int64_t count = HWY_MIN(lanes, n - i);
    if (count == lanes) {
      hn::StoreU(power(hn::LoadU(df, x + i)), df, y + i);
      continue;
    }
    for (int64_t k = 0; k < lanes; ++k) last[k] = x[i + HWY_MIN(k, count - 1)];
    hn::Store(power(hn::Load(df, last)), df, last);
    for (int64_t k = 0; k < count; ++k) y[i + k] = last[k];
  }
}

// Blocks with zeros, negative numbers, infinities or NaN go to the scalar function.
void Power(const float* x, float* y, int64_t n, float exponent) {
  constexpr int64_t kBlock = 64;
  const bool finite = std::isfinite(exponent);
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t count = HWY_MIN(kBlock, n - begin);
    bool positive = finite;
    for (int64_t i = 0; i < count; ++i) {
      positive = positive && x[begin + i] > 0 && x[begin + i] <= hwy::HighestValue<float>();
    }
    if (positive) {
      PowOfPositives(x + begin, y + begin, count, exponent);
      continue;
    }
    for (int64_t i = begin; i < begin + count; ++i) {
      y[i] = static_cast<float>(std::pow(static_cast<double>(x[i]), static_cast<double>(exponent)));
    }
  }
}

// y[i] = f(a[i * a_stride], b[i * b_stride]).
template <class F>
HWY_INLINE void Zip(const RowOperands& operands, void* output, int64_t n, const F& f) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto* a = static_cast<const float*>(operands.a);
  const auto* b = static_cast<const float*>(operands.b);
  auto* y = static_cast<float*>(output);
  const int64_t a_stride = operands.a_stride;
  const int64_t b_stride = operands.b_stride;
  const auto a_all = hn::Set(d, n > 0 ? a[0] : 0.0f);
  const auto b_all = hn::Set(d, n > 0 ? b[0] : 0.0f);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto va = a_stride == 0 ? a_all : hn::LoadU(d, a + i);
    const auto vb = b_stride == 0 ? b_all : hn::LoadU(d, b + i);
    hn::StoreU(f(va, vb), d, y + i);
  }
  const hn::CappedTag<float, 1> one;
  for (; i < n; ++i) {
    hn::StoreU(f(hn::Set(one, a[i * a_stride]), hn::Set(one, b[i * b_stride])), one, y + i);
  }
}

void Add(const RowOperands& operands, void* y, int64_t n) {
  Zip(operands, y, n, [](auto a, auto b) HWY_ATTR { return hn::Add(a, b); });
}
void Sub(const RowOperands& operands, void* y, int64_t n) {
  Zip(operands, y, n, [](auto a, auto b) HWY_ATTR { return hn::Sub(a, b); });
}
void Mul(const RowOperands& operands, void* y, int64_t n) {
  Zip(operands, y, n, [](auto a, auto b) HWY_ATTR { return hn::Mul(a, b); });
}
void Div(const RowOperands& operands, void* y, int64_t n) {
  Zip(operands, y, n, [](auto a, auto b) HWY_ATTR { return hn::Div(a, b); });
}
void Max(const RowOperands& operands, void* y, int64_t n) {
  Zip(operands, y, n, [](auto a, auto b) HWY_ATTR { return MaxOrNaN(a, b); });
}
void Min(const RowOperands& operands, void* y, int64_t n) {
  Zip(operands, y, n, [](auto a, auto b) HWY_ATTR { return MinOrNaN(a, b); });
}

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse::onnx_ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagefuse::onnx_ops {

HWY_EXPORT(Neg);
HWY_EXPORT(Abs);
HWY_EXPORT(Sqrt);
HWY_EXPORT(Reciprocal);
HWY_EXPORT(Square);
HWY_EXPORT(Cube);
HWY_EXPORT(Relu);
HWY_EXPORT(LeakyRelu);
HWY_EXPORT(Exponential);
HWY_EXPORT(Sine);
HWY_EXPORT(Cosine);
HWY_EXPORT(Tangent);
HWY_EXPORT(Logistic);
HWY_EXPORT(Swish);
HWY_EXPORT(ErrorFunction);
HWY_EXPORT(Gelu);
HWY_EXPORT(GeluTanh);
HWY_EXPORT(Floor);
HWY_EXPORT(Ceil);
HWY_EXPORT(Round);
HWY_EXPORT(Logarithm);
HWY_EXPORT(Elu);
HWY_EXPORT(Softplus);
HWY_EXPORT(Mish);
HWY_EXPORT(PowHalf);
HWY_EXPORT(Power);
HWY_EXPORT(Add);
HWY_EXPORT(Sub);
HWY_EXPORT(Mul);
HWY_EXPORT(Div);
HWY_EXPORT(Max);
HWY_EXPORT(Min);

#define PF_UNARY_ROW(row, function)                            \
  void row(const float* x, float* y, int64_t n, float alpha) { \
    HWY_DYNAMIC_DISPATCH(function)(x, y, n, alpha);            \
  }
PF_UNARY_ROW(NegRow, Neg)
PF_UNARY_ROW(AbsRow, Abs)
PF_UNARY_ROW(SqrtRow, Sqrt)
PF_UNARY_ROW(ReciprocalRow, Reciprocal)
PF_UNARY_ROW(SquareRow, Square)
PF_UNARY_ROW(CubeRow, Cube)
PF_UNARY_ROW(ReluRow, Relu)
PF_UNARY_ROW(LeakyReluRow, LeakyRelu)
PF_UNARY_ROW(ExpRow, Exponential)
PF_UNARY_ROW(SinRow, Sine)
PF_UNARY_ROW(CosRow, Cosine)
PF_UNARY_ROW(TanhRow, Tangent)
PF_UNARY_ROW(SigmoidRow, Logistic)
PF_UNARY_ROW(SwishRow, Swish)
PF_UNARY_ROW(ErfRow, ErrorFunction)
PF_UNARY_ROW(GeluRow, Gelu)
PF_UNARY_ROW(GeluTanhRow, GeluTanh)
PF_UNARY_ROW(FloorRow, Floor)
PF_UNARY_ROW(CeilRow, Ceil)
PF_UNARY_ROW(RoundRow, Round)
PF_UNARY_ROW(LogRow, Logarithm)
PF_UNARY_ROW(EluRow, Elu)
PF_UNARY_ROW(SoftplusRow, Softplus)
PF_UNARY_ROW(MishRow, Mish)
PF_UNARY_ROW(PowHalfRow, PowHalf)
PF_UNARY_ROW(PowRow, Power)
#undef PF_UNARY_ROW

#define PF_BINARY_ROW(row, function)                          \
  void row(const RowOperands& operands, void* y, int64_t n) { \
    HWY_DYNAMIC_DISPATCH(function)(operands, y, n);           \
  }
PF_BINARY_ROW(AddRow, Add)
PF_BINARY_ROW(SubRow, Sub)
PF_BINARY_ROW(MulRow, Mul)
PF_BINARY_ROW(DivRow, Div)
PF_BINARY_ROW(MaxRow, Max)
PF_BINARY_ROW(MinRow, Min)
#undef PF_BINARY_ROW

UnaryRow PowRowFor(float exponent) {
  if (exponent == 2.0f) return SquareRow;
  if (exponent == 3.0f) return CubeRow;
  if (exponent == 0.5f) return PowHalfRow;
  if (exponent == -1.0f) return ReciprocalRow;
  return PowRow;
}

}  // namespace pagefuse::onnx_ops
#endif  // HWY_ONCE
