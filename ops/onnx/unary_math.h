// SPDX-License-Identifier: Apache-2.0
// Scalar functions of the unary ops, one constant each: the definition that every kernel is compared
// with.
#pragma once

#include <cmath>
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

inline constexpr auto kNeg = []<typename T>(T x, const UnaryParams&) -> T {
  if constexpr (kIsInt<T>)
    return kSub(T{0}, x);
  else
    return -x;
};

// The least integer is its own absolute value (it wraps).
inline constexpr auto kAbs = []<typename T>(T x, const UnaryParams& params) -> T {
  if constexpr (std::is_floating_point_v<T>)
    return std::fabs(x);
  else
    return x < T{0} ? kNeg(x, params) : x;
};

// NaN stays NaN.
inline constexpr auto kSign = []<typename T>(T x, const UnaryParams&) -> T {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(x)) return x;
  }
  return static_cast<T>((x > T{0}) - (x < T{0}));
};

inline constexpr auto kSqrt = [](auto x, const UnaryParams&) { return std::sqrt(x); };
inline constexpr auto kExp = [](auto x, const UnaryParams&) { return std::exp(x); };
inline constexpr auto kLog = [](auto x, const UnaryParams&) { return std::log(x); };
inline constexpr auto kReciprocal = [](auto x, const UnaryParams&) { return 1 / x; };
inline constexpr auto kTan = [](auto x, const UnaryParams&) { return std::tan(x); };
inline constexpr auto kAsin = [](auto x, const UnaryParams&) { return std::asin(x); };
inline constexpr auto kAcos = [](auto x, const UnaryParams&) { return std::acos(x); };
inline constexpr auto kAtan = [](auto x, const UnaryParams&) { return std::atan(x); };
inline constexpr auto kSinh = [](auto x, const UnaryParams&) { return std::sinh(x); };
inline constexpr auto kCosh = [](auto x, const UnaryParams&) { return std::cosh(x); };
inline constexpr auto kAsinh = [](auto x, const UnaryParams&) { return std::asinh(x); };
inline constexpr auto kAcosh = [](auto x, const UnaryParams&) { return std::acosh(x); };
inline constexpr auto kAtanh = [](auto x, const UnaryParams&) { return std::atanh(x); };
inline constexpr auto kSin = [](auto x, const UnaryParams&) { return std::sin(x); };
inline constexpr auto kCos = [](auto x, const UnaryParams&) { return std::cos(x); };
inline constexpr auto kTanh = [](auto x, const UnaryParams&) { return std::tanh(x); };
inline constexpr auto kFloor = [](auto x, const UnaryParams&) { return std::floor(x); };
inline constexpr auto kCeil = [](auto x, const UnaryParams&) { return std::ceil(x); };
// Half to even, which is the rounding mode that programs start in.
inline constexpr auto kRound = [](auto x, const UnaryParams&) { return std::nearbyint(x); };
// Integers through double, truncated: erf of an integer is -1, 0 or 1 up to that.
inline constexpr auto kErf = []<typename T>(T x, const UnaryParams&) -> T {
  if constexpr (std::is_floating_point_v<T>)
    return std::erf(x);
  else
    return static_cast<T>(std::erf(static_cast<double>(x)));
};

// 1 / (1 + e^-x), from the side on which e^ does not overflow.
inline constexpr auto kSigmoid = []<typename T>(T x, const UnaryParams&) -> T {
  if (x >= 0) return T{1} / (T{1} + std::exp(-x));
  const T e = std::exp(x);
  return e / (T{1} + e);
};

inline constexpr auto kRelu = []<typename T>(T x, const UnaryParams&) -> T {
  return x < T{0} ? T{0} : x;
};
inline constexpr auto kLeakyRelu = []<typename T>(T x, const UnaryParams& params) -> T {
  return x < 0 ? static_cast<T>(params.alpha) * x : x;
};
inline constexpr auto kElu = []<typename T>(T x, const UnaryParams& params) -> T {
  return x < 0 ? static_cast<T>(params.alpha) * std::expm1(x) : x;
};
inline constexpr auto kCelu = []<typename T>(T x, const UnaryParams& params) -> T {
  const T alpha = static_cast<T>(params.alpha);
  return x < 0 ? alpha * std::expm1(x / alpha) : x;
};
// alpha and gamma, which is `beta` here.
inline constexpr auto kSelu = []<typename T>(T x, const UnaryParams& params) -> T {
  const T gamma = static_cast<T>(params.beta);
  return x <= 0 ? gamma * static_cast<T>(params.alpha) * std::expm1(x) : gamma * x;
};
inline constexpr auto kHardSigmoid = []<typename T>(T x, const UnaryParams& params) -> T {
  const T line = static_cast<T>(params.alpha) * x + static_cast<T>(params.beta);
  return line < 0 ? T{0} : line > 1 ? T{1} : line;
};
inline constexpr auto kSoftsign = [](auto x, const UnaryParams&) { return x / (1 + std::fabs(x)); };
inline constexpr auto kThresholdedRelu = []<typename T>(T x, const UnaryParams& params) -> T {
  return x <= static_cast<T>(params.alpha) ? T{0} : x;
};
// bias is `alpha` here, lambd `beta`. Integers go through double, and saturate.
inline constexpr auto kShrink = []<typename T>(T x, const UnaryParams& params) -> T {
  using C = std::conditional_t<std::is_floating_point_v<T>, T, double>;
  const C value = static_cast<C>(x), bias = params.alpha, lambd = params.beta;
  const C result = value < -lambd ? value + bias : value > lambd ? value - bias : C{0};
  return ConvertElement<T>(result);
};
inline constexpr auto kHardSwish = []<typename T>(T x, const UnaryParams&) -> T {
  const T gate = x / T{6} + T{0.5};
  return x * (gate < 0 ? T{0} : gate > 1 ? T{1} : gate);
};

// log(1 + e^x), without overflow.
inline constexpr auto kSoftplus = []<typename T>(T x, const UnaryParams&) -> T {
  return (x > 0 ? x : T{0}) + std::log1p(std::exp(-std::fabs(x)));
};
inline constexpr auto kMish = [](auto x, const UnaryParams& params) {
  return x * std::tanh(kSoftplus(x, params));
};
inline constexpr auto kSwish = []<typename T>(T x, const UnaryParams& params) -> T {
  return x * kSigmoid(static_cast<T>(params.alpha) * x, params);
};
inline constexpr auto kGelu = []<typename T>(T x, const UnaryParams&) -> T {
  return T{0.5} * x * (T{1} + std::erf(x * static_cast<T>(0.70710678118654752440)));
};
inline constexpr auto kGeluTanh = []<typename T>(T x, const UnaryParams&) -> T {
  constexpr T kSqrt2OverPi = static_cast<T>(0.79788456080286535588);
  return T{0.5} * x * (T{1} + std::tanh(kSqrt2OverPi * (x + static_cast<T>(0.044715) * x * x * x)));
};

inline constexpr auto kNot = [](bool x, const UnaryParams&) { return !x; };
inline constexpr auto kBitwiseNot = []<typename T>(T x, const UnaryParams&) -> T {
  return static_cast<T>(~x);
};
inline constexpr auto kIsNaN = [](auto x, const UnaryParams&) { return std::isnan(x); };
inline constexpr auto kIsInf = [](auto x, const UnaryParams& params) {
  return std::isinf(x) && (x > 0 ? params.detect_positive : params.detect_negative);
};

}  // namespace pagefuse::onnx_ops
