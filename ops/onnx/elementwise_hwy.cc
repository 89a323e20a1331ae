#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/ops/onnx/elementwise_hwy.cc"
#include "pagefuse/ops/onnx/elementwise_hwy.h"

#include <cmath>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "pagefuse/ops/onnx/math-inl.h"

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
  return nullptr;
}

}  // namespace pagefuse::onnx_ops
#endif  // HWY_ONCE
