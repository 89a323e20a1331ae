// Scalar functions of the unary ops, one functor each: the definition that every kernel is compared
// with.
#pragma once

#include <cmath>
#include <cstdlib>
#include <type_traits>

#include "pagefuse/ops/onnx/scalar_math.h"

namespace pagefuse::onnx_ops {

// The attributes of unary ops; each op reads those it declares.
struct UnaryParams {
  float alpha = 0;
  float beta = 0;
  bool detect_negative = true;
  bool detect_positive = true;
};

struct NegFn {
  template <typename T>
  static T Apply(T x, const UnaryParams&) {
    if constexpr (kIsInt<T>)
      return SubFn::Apply(T{0}, x);
    else
      return -x;
  }
};

// The least integer is its own absolute value (it wraps).
struct AbsFn {
  template <typename T>
  static T Apply(T x, const UnaryParams& params) {
    if constexpr (std::is_floating_point_v<T>)
      return std::fabs(x);
    else
      return x < T{0} ? NegFn::Apply(x, params) : x;
  }
};

// NaN stays NaN.
struct SignFn {
  template <typename T>
  static T Apply(T x, const UnaryParams&) {
    if constexpr (std::is_floating_point_v<T>) {
      if (std::isnan(x)) return x;
    }
    return static_cast<T>((x > T{0}) - (x < T{0}));
  }
};

struct SqrtFn {
  template <typename T>
  static T Apply(T x, const UnaryParams&) {
    return std::sqrt(x);
  }
};
struct ExpFn {
  template <typename T>
  static T Apply(T x, const UnaryParams&) {
    return std::exp(x);
  }
};
struct LogFn {
  template <typename T>
  static T Apply(T x, const UnaryParams&) {
    return std::log(x);
  }
};
struct ReciprocalFn {
  template <typename T>
  static T Apply(T x, const UnaryParams&) {
    return T{1} / x;
  }
};
struct TanFn {
  template <typename T>
  static T Apply(T x, const UnaryParams&) {
    return std::tan(x);
  }
};
struct AsinFn {
  template <typename T>
  static T Apply(T x, const UnaryParams&) {
    return std::asin(x);
  }
};
struct AcosFn {
  template <typename T>
  static T Apply(T x, const UnaryParams&) {
    return std::acos(x);
  }
};
struct AtanFn {
  template <typename T>
  static T Apply(T x, const UnaryParams&) {
    return std::atan(x);
  }
};
struct SinhFn {
  template <typename T>
  static T Apply(T x, const UnaryParams&) {
    return std::sinh(x);
  }
};
struct CoshFn {
  template <typename T>
  static T Apply(T x, const UnaryParams&) {
    return std::cosh(x);
  }
};
struct AsinhFn {
  template <typename T>
  static T Apply(T x, const UnaryParams&) {
    return std::asinh(x);
  }
};
struct AcoshFn {
  template <typename T>
  static T Apply(T x, const UnaryParams&) {
    return std::acosh(x);
  }
};
struct AtanhFn {
  template <typename T>
  static T Apply(T x, const UnaryParams&) {
    return std::atanh(x);
  }
};
struct SinFn {
  template <typename T>
  static T Apply(T x, const UnaryParams&) {
    return std::sin(x);
  }
};
struct CosFn {
  template <typename T>
  static T Apply(T x, const UnaryParams&) {
    return std::cos(x);
  }
};
struct TanhFn {
  template <typename T>
  static T Apply(T x, const UnaryParams&) {
    return std::tanh(x);
  }
};
// Integers through double, truncated: erf of an integer is -1, 0 or 1 up to that.
struct ErfFn {
  template <typename T>
  static T Apply(T x, const UnaryParams&) {
    if constexpr (std::is_floating_point_v<T>)
      return std::erf(x);
    else
      return static_cast<T>(std::erf(static_cast<double>(x)));
  }
};
struct FloorFn {
  template <typename T>
  static T Apply(T x, const UnaryParams&) {
    return std::floor(x);
  }
};
struct CeilFn {
  template <typename T>
  static T Apply(T x, const UnaryParams&) {
    return std::ceil(x);
  }
};
// Half to even, which is the rounding mode that programs start in.
struct RoundFn {
  template <typename T>
  static T Apply(T x, const UnaryParams&) {
    return std::nearbyint(x);
  }
};

// 1 / (1 + e^-x), from the side on which e^ does not overflow.
struct SigmoidFn {
  template <typename T>
  static T Apply(T x, const UnaryParams&) {
    if (x >= 0) return T{1} / (T{1} + std::exp(-x));
    const T e = std::exp(x);
    return e / (T{1} + e);
  }
};

struct ReluFn {
  template <typename T>
  static T Apply(T x, const UnaryParams&) {
    return x < T{0} ? T{0} : x;
  }
};
struct LeakyReluFn {
  template <typename T>
  static T Apply(T x, const UnaryParams& params) {
    return x < 0 ? static_cast<T>(params.alpha) * x : x;
  }
};
struct EluFn {
  template <typename T>
  static T Apply(T x, const UnaryParams& params) {
    return x < 0 ? static_cast<T>(params.alpha) * std::expm1(x) : x;
  }
};
struct CeluFn {
  template <typename T>
  static T Apply(T x, const UnaryParams& params) {
    const T alpha = static_cast<T>(params.alpha);
    return x < 0 ? alpha * std::expm1(x / alpha) : x;
  }
};
// alpha and gamma, which is `beta` here.
struct SeluFn {
  template <typename T>
  static T Apply(T x, const UnaryParams& params) {
    const T gamma = static_cast<T>(params.beta);
    return x <= 0 ? gamma * static_cast<T>(params.alpha) * std::expm1(x) : gamma * x;
  }
};
struct HardSigmoidFn {
  template <typename T>
  static T Apply(T x, const UnaryParams& params) {
    const T line = static_cast<T>(params.alpha) * x + static_cast<T>(params.beta);
    return line < 0 ? T{0} : line > 1 ? T{1} : line;
  }
};
struct SoftsignFn {
  template <typename T>
  static T Apply(T x, const UnaryParams&) {
    return x / (T{1} + std::fabs(x));
  }
};
struct ThresholdedReluFn {
  template <typename T>
  static T Apply(T x, const UnaryParams& params) {
    return x <= static_cast<T>(params.alpha) ? T{0} : x;
  }
};
// bias is `alpha` here, lambd `beta`. Integers go through double, and saturate.
struct ShrinkFn {
  template <typename T>
  static T Apply(T x, const UnaryParams& params) {
    using C = std::conditional_t<std::is_floating_point_v<T>, T, double>;
    const C value = static_cast<C>(x), bias = params.alpha, lambd = params.beta;
    const C result = value < -lambd ? value + bias : value > lambd ? value - bias : C{0};
    return ConvertElement<T>(result);
  }
};
struct HardSwishFn {
  template <typename T>
  static T Apply(T x, const UnaryParams&) {
    const T gate = x / T{6} + T{0.5};
    return x * (gate < 0 ? T{0} : gate > 1 ? T{1} : gate);
  }
};

// log(1 + e^x), without overflow.
struct SoftplusFn {
  template <typename T>
  static T Apply(T x, const UnaryParams&) {
    return (x > 0 ? x : T{0}) + std::log1p(std::exp(-std::fabs(x)));
  }
};
struct MishFn {
  template <typename T>
  static T Apply(T x, const UnaryParams& params) {
    return x * std::tanh(SoftplusFn::Apply(x, params));
  }
};
struct SwishFn {
  template <typename T>
  static T Apply(T x, const UnaryParams& params) {
    return x * SigmoidFn::Apply(static_cast<T>(params.alpha) * x, params);
  }
};
struct GeluFn {
  template <typename T>
  static T Apply(T x, const UnaryParams&) {
    return T{0.5} * x * (T{1} + std::erf(x * static_cast<T>(0.70710678118654752440)));
  }
};
struct GeluTanhFn {
  template <typename T>
  static T Apply(T x, const UnaryParams&) {
    constexpr T kSqrt2OverPi = static_cast<T>(0.79788456080286535588);
    return T{0.5} * x *
           (T{1} + std::tanh(kSqrt2OverPi * (x + static_cast<T>(0.044715) * x * x * x)));
  }
};

struct NotFn {
  static bool Apply(bool x, const UnaryParams&) { return !x; }
};
struct BitwiseNotFn {
  template <typename T>
  static T Apply(T x, const UnaryParams&) {
    return static_cast<T>(~x);
  }
};
struct IsNaNFn {
  template <typename T>
  static bool Apply(T x, const UnaryParams&) {
    return std::isnan(x);
  }
};
struct IsInfFn {
  template <typename T>
  static bool Apply(T x, const UnaryParams& params) {
    return std::isinf(x) && (x > 0 ? params.detect_positive : params.detect_negative);
  }
};

}  // namespace pagefuse::onnx_ops
