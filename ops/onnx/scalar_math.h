// SPDX-License-Identifier: Apache-2.0
// Scalar functions of the elementwise ops, one constant each: the definition that every kernel is
// compared with.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "pagefuse/ops/kernels/numeric/dispatch.h"

namespace pagefuse::onnx_ops {

// Integer arithmetic wraps; through uint64_t, so that no overflow is undefined.
template <typename T>
constexpr bool kIsInt = std::is_integral_v<T> && !std::is_same_v<T, bool>;

inline constexpr auto kAdd = []<typename T>(T a, T b) -> T {
  if constexpr (kIsInt<T>)
    return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  else
    return a + b;
};

inline constexpr auto kSub = []<typename T>(T a, T b) -> T {
  if constexpr (kIsInt<T>)
    return static_cast<T>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
  else
    return a - b;
};

inline constexpr auto kMul = []<typename T>(T a, T b) -> T {
  if constexpr (kIsInt<T>)
    return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  else
    return a * b;
};

// Integers truncate; the divisor is not 0 (checked before), and -1 negates, so that the least value
// has a quotient too.
inline constexpr auto kDiv = []<typename T>(T a, T b) -> T {
  if constexpr (kIsInt<T> && std::is_signed_v<T>) {
    if (b == -1) return kSub(T{0}, a);
  }
  return static_cast<T>(a / b);
};

// The remainder with the dividend's sign, as C's fmod. An integer divisor is not 0.
inline constexpr auto kFmod = []<typename T>(T a, T b) -> T {
  if constexpr (kIsInt<T>) {
    if constexpr (std::is_signed_v<T>) {
      if (b == -1) return 0;
    }
    return static_cast<T>(a % b);
  } else {
    return std::fmod(a, b);
  }
};

// The remainder with the divisor's sign, as Python's and numpy's `%`.
inline constexpr auto kMod = []<typename T>(T a, T b) -> T {
  const T r = kFmod(a, b);
  if constexpr (kIsInt<T>) {
    if constexpr (std::is_signed_v<T>)
      return r != 0 && (r < 0) != (b < 0) ? static_cast<T>(r + b) : r;
    return r;
  } else {
    if (r == 0) return std::copysign(T{0}, b);
    return (r < 0) != (b < 0) ? r + b : r;
  }
};

// NaN wins.
inline constexpr auto kMax = []<typename T>(T a, T b) -> T {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a) || std::isnan(b)) return a + b;
  }
  return a < b ? b : a;
};

inline constexpr auto kMin = []<typename T>(T a, T b) -> T {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a) || std::isnan(b)) return a + b;
  }
  return b < a ? b : a;
};

// Base and exponent may differ in type; the result has the base's. Integers to integer powers wrap;
// a negative exponent gives the truncated quotient (0 for a base of 0, which has none).
inline constexpr auto kPow = []<typename T, typename E>(T base, E exponent) -> T {
  if constexpr (kIsInt<T> && kIsInt<E>) {
    if (std::is_signed_v<E> && exponent < E{0}) {
      if (base == 1) return 1;
      if (base == static_cast<T>(-1) && std::is_signed_v<T>)
        return (exponent & 1) != 0 ? base : T{1};
      return 0;
    }
    uint64_t result = 1;
    uint64_t factor = static_cast<uint64_t>(base);
    for (uint64_t e = static_cast<uint64_t>(exponent); e != 0; e >>= 1, factor *= factor) {
      if ((e & 1) != 0) result *= factor;
    }
    return static_cast<T>(result);
  } else if constexpr (kIsInt<T>) {
    return ConvertElement<T>(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  } else {
    return static_cast<T>(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
};

inline constexpr auto kPRelu = []<typename T>(T x, T slope) -> T {
  return x < T{0} ? kMul(x, slope) : x;
};

inline constexpr auto kAnd = [](bool a, bool b) { return a && b; };
inline constexpr auto kOr = [](bool a, bool b) { return a || b; };
inline constexpr auto kXor = [](bool a, bool b) { return a != b; };

inline constexpr auto kEqual = [](auto a, auto b) { return a == b; };
inline constexpr auto kLess = [](auto a, auto b) { return a < b; };
inline constexpr auto kLessOrEqual = [](auto a, auto b) { return a <= b; };
inline constexpr auto kGreater = [](auto a, auto b) { return a > b; };
inline constexpr auto kGreaterOrEqual = [](auto a, auto b) { return a >= b; };

inline constexpr auto kBitwiseAnd = []<typename T>(T a, T b) { return static_cast<T>(a & b); };
inline constexpr auto kBitwiseOr = []<typename T>(T a, T b) { return static_cast<T>(a | b); };
inline constexpr auto kBitwiseXor = []<typename T>(T a, T b) { return static_cast<T>(a ^ b); };

// A shift by the width or more, or by a negative count, moves every bit out; what comes in is 0.
inline constexpr auto kShiftLeft = []<typename T>(T a, T count) -> T {
  if (count < T{0} || count >= static_cast<T>(sizeof(T) * 8)) return 0;
  return static_cast<T>(static_cast<uint64_t>(a) << count);
};

// As above, but what comes in is the sign.
inline constexpr auto kShiftRight = []<typename T>(T a, T count) -> T {
  if (count < T{0} || count >= static_cast<T>(sizeof(T) * 8))
    return a < T{0} ? static_cast<T>(-1) : T{0};
  return static_cast<T>(a >> count);
};

}  // namespace pagefuse::onnx_ops
