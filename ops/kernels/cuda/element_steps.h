// SPDX-License-Identifier: Apache-2.0
// What one step of an elementwise program computes, on registers of 4 or 8 bytes. Device code alone.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "pagefuse/ops/kernels/cuda/element_word.h"

namespace pagefuse::cuda {

// --- of every type of number ---

template <typename T>
__device__ bool IsNegative(T x) {
  if constexpr (std::is_unsigned_v<T>) {
    return false;
  } else {
    return x < T{0};
  }
}

template <typename Word, typename T>
__device__ bool NumberStep(ElementOp op, T a, T b, Word& y) {
  using W = ElementWord<Word>;
  constexpr bool kFloating = std::is_floating_point_v<T>;
  // Integers wrap, as unsigned ones do.
  using U = std::conditional_t<kFloating, T, Word>;
  const U ua = static_cast<U>(a), ub = static_cast<U>(b);
  const bool nan = kFloating && (a != a || b != b);
  switch (op) {
    case ElementOp::kAdd:
      y = W::Of(ua + ub);
      return true;
    case ElementOp::kSub:
      y = W::Of(ua - ub);
      return true;
    case ElementOp::kMul:
      y = W::Of(ua * ub);
      return true;
    case ElementOp::kMax:
      y = nan ? W::Of(ua + ub) : W::Of(a < b ? b : a);
      return true;
    case ElementOp::kMin:
      y = nan ? W::Of(ua + ub) : W::Of(b < a ? b : a);
      return true;
    case ElementOp::kNeg:
      y = kFloating ? W::Of(static_cast<U>(-a)) : W::Of(U{0} - ua);
      return true;
    case ElementOp::kRelu:
      y = W::Of(IsNegative(a) ? T{0} : a);
      return true;
    case ElementOp::kPRelu:
      y = IsNegative(a) ? W::Of(ua * ub) : W::Of(a);
      return true;
    case ElementOp::kSign:
      y = a != a ? W::Of(a) : W::Of(static_cast<T>((a > T{0}) - IsNegative(a)));
      return true;
    case ElementOp::kClipBelow:
      y = W::Of(a < b ? b : a);
      return true;
    case ElementOp::kClipAbove:
      y = W::Of(a > b ? b : a);
      return true;
    case ElementOp::kEqual:
      y = W::Of(a == b);
      return true;
    case ElementOp::kLess:
      y = W::Of(a < b);
      return true;
    case ElementOp::kLessOrEqual:
      y = W::Of(a <= b);
      return true;
    case ElementOp::kGreater:
      y = W::Of(a > b);
      return true;
    case ElementOp::kGreaterOrEqual:
      y = W::Of(a >= b);
      return true;
    default:
      return false;
  }
}

// --- of integers and bools ---

template <typename Word, typename T>
__device__ Word IntegerStep(ElementOp op, T a, T b) {
  using W = ElementWord<Word>;
  Word y = 0;
  if (NumberStep(op, a, b, y)) return y;
  switch (op) {
    case ElementOp::kDiv:
      // A divisor of 0 is refused before; what a device computed does not stop it.
      if (b == 0) return 0;
      if (std::is_signed_v<T> && b == static_cast<T>(-1)) return Word{0} - static_cast<Word>(a);
      return W::Of(a / b);
    case ElementOp::kAbs:
      return IsNegative(a) ? Word{0} - static_cast<Word>(a) : static_cast<Word>(a);
    case ElementOp::kBitAnd:
      return W::Of(a & b);
    case ElementOp::kBitOr:
      return W::Of(a | b);
    case ElementOp::kBitXor:
      return W::Of(a ^ b);
    case ElementOp::kBitNot:
      return W::Of(~a);
    default:  // kNot
      return W::Of(a == 0);
  }
}

// --- of floats ---

__device__ inline float SigmoidOf(float x) {
  if (x >= 0) return 1.0f / (1.0f + expf(-x));
  const float e = expf(x);
  return e / (1.0f + e);
}

__device__ inline float SoftplusOf(float x) { return (x > 0 ? x : 0.0f) + log1pf(expf(-fabsf(x))); }

__device__ inline float GeluOf(float x) {
  return 0.5f * x * (1.0f + erff(x * 0.70710678118654752440f));
}

__device__ inline float GeluTanhOf(float x) {
  constexpr float kSqrt2OverPi = 0.79788456080286535588f;
  return 0.5f * x * (1.0f + tanhf(kSqrt2OverPi * (x + 0.044715f * x * x * x)));
}

// What exports square and cube with is exact to a rounding or two.
__device__ inline float PowOf(float x, float exponent) {
  if (exponent == 2.0f) return x * x;
  if (exponent == 3.0f) return x * x * x;
  return powf(x, exponent);
}

__device__ inline float UnitOf(float x) { return x < 0 ? 0.0f : x > 1 ? 1.0f : x; }

__device__ inline float FloatFunction(const ElementStep& step, float a, float b) {
  switch (step.op) {
    case ElementOp::kPow:
      return PowOf(a, b);
    case ElementOp::kExp:
      return expf(a);
    case ElementOp::kLog:
      return logf(a);
    case ElementOp::kSin:
      return sinf(a);
    case ElementOp::kCos:
      return cosf(a);
    case ElementOp::kTanh:
      return tanhf(a);
    case ElementOp::kErf:
      return erff(a);
    case ElementOp::kFloor:
      return floorf(a);
    case ElementOp::kCeil:
      return ceilf(a);
    case ElementOp::kRound:
      return rintf(a);
    case ElementOp::kSigmoid:
      return SigmoidOf(a);
    case ElementOp::kGelu:
      return GeluOf(a);
    case ElementOp::kGeluTanh:
      return GeluTanhOf(a);
    case ElementOp::kSwish:
      return a * SigmoidOf(step.alpha * a);
    case ElementOp::kSoftplus:
      return SoftplusOf(a);
    case ElementOp::kMish:
      return a * tanhf(SoftplusOf(a));
    case ElementOp::kElu:
      return a < 0 ? step.alpha * expm1f(a) : a;
    case ElementOp::kLeakyRelu:
      return a < 0 ? step.alpha * a : a;
    case ElementOp::kHardSigmoid:
      return UnitOf(step.alpha * a + step.beta);
    case ElementOp::kHardSwish:
      return a * UnitOf(a / 6.0f + 0.5f);
    default:  // kSoftsign
      return a / (1.0f + fabsf(a));
  }
}

template <typename Word, typename T>
__device__ Word FloatingStep(const ElementStep& step, T a, T b) {
  using W = ElementWord<Word>;
  Word y = 0;
  if (NumberStep(step.op, a, b, y)) return y;
  switch (step.op) {
    case ElementOp::kDiv:
      return W::Of(a / b);
    case ElementOp::kAbs:
      return W::Of(fabs(a));
    case ElementOp::kSqrt:
      return W::Of(sqrt(a));
    case ElementOp::kReciprocal:
      return W::Of(1 / a);
    case ElementOp::kIsNaN:
      return W::Of(a != a);
    case ElementOp::kIsInf:
      return W::Of(isinf(a) && (a > 0 ? step.beta : step.alpha) != 0);
    default:
      break;
  }
  if constexpr (std::is_same_v<T, float>) return W::Of(FloatFunction(step, a, b));
  return y;
}

// --- all ---

template <typename Word>
__device__ Word RunStep(const ElementStep& step, Word a, Word b, Word c) {
  using W = ElementWord<Word>;
  using Signed = typename W::Signed;
  const auto type = static_cast<DataType>(step.type);
  if (step.op == ElementOp::kWhere) return a != 0 ? b : c;
  const bool casts = step.op == ElementOp::kCast;
  Word y = 0;
  switch (step.kind) {
    case ElementKind::kFloat:
      y = casts ? CastTo<Word>(type, W::AsFloat(a))
                : FloatingStep<Word>(step, W::AsFloat(a), W::AsFloat(b));
      break;
    case ElementKind::kDouble:
      if constexpr (sizeof(Word) == sizeof(double)) {
        y = casts ? CastTo<Word>(type, W::AsDouble(a))
                  : FloatingStep<Word>(step, W::AsDouble(a), W::AsDouble(b));
      }
      break;
    case ElementKind::kSigned:
      y = casts ? CastTo<Word>(type, static_cast<Signed>(a))
                : IntegerStep<Word>(step.op, static_cast<Signed>(a), static_cast<Signed>(b));
      break;
    case ElementKind::kUnsigned:
      y = casts ? CastTo<Word>(type, a) : IntegerStep<Word>(step.op, a, b);
      break;
  }
  return Narrowed(y, type);
}

}  // namespace pagefuse::cuda
