// Scalar functions of the elementwise ops, one functor each: the definition that every kernel is
// compared with.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "pagefuse/kernels/numeric/dispatch.h"

namespace pagefuse::onnx_ops {

// Integer arithmetic wraps; through uint64_t, so that no overflow is undefined.
template <typename T>
constexpr bool kIsInt = std::is_integral_v<T> && !std::is_same_v<T, bool>;

struct AddFn {
  template <typename T>
  static T Apply(T a, T b) {
    if constexpr (kIsInt<T>)
      return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
    else
      return a + b;
  }
};

struct SubFn {
  template <typename T>
  static T Apply(T a, T b) {
    if constexpr (kIsInt<T>)
      return static_cast<T>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
    else
      return a - b;
  }
};

struct MulFn {
  template <typename T>
  static T Apply(T a, T b) {
    if constexpr (kIsInt<T>)
      return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    else
      return a * b;
  }
};

// Integers truncate; the divisor is not 0 (checked before), and -1 negates, so that the least value
// has a quotient too.
struct DivFn {
  template <typename T>
  static T Apply(T a, T b) {
    if constexpr (kIsInt<T> && std::is_signed_v<T>) {
      if (b == -1) return SubFn::Apply(T{0}, a);
    }
    return static_cast<T>(a / b);
  }
};

// The remainder with the dividend's sign, as C's fmod. An integer divisor is not 0.
struct FmodFn {
  template <typename T>
  static T Apply(T a, T b) {
    if constexpr (kIsInt<T>) {
      if constexpr (std::is_signed_v<T>) {
        if (b == -1) return 0;
      }
      return static_cast<T>(a % b);
    } else {
      return std::fmod(a, b);
    }
  }
};

// The remainder with the divisor's sign, as Python's and numpy's `%`.
struct ModFn {
  template <typename T>
  static T Apply(T a, T b) {
    const T r = FmodFn::Apply(a, b);
    if constexpr (kIsInt<T>) {
      if constexpr (std::is_signed_v<T>)
        return r != 0 && (r < 0) != (b < 0) ? static_cast<T>(r + b) : r;
      return r;
    } else {
      if (r == 0) return std::copysign(T{0}, b);
      return (r < 0) != (b < 0) ? r + b : r;
    }
  }
};

// NaN wins.
struct MaxFn {
  template <typename T>
  static T Apply(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      if (std::isnan(a) || std::isnan(b)) return a + b;
    }
    return a < b ? b : a;
  }
};

struct MinFn {
  template <typename T>
  static T Apply(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      if (std::isnan(a) || std::isnan(b)) return a + b;
    }
    return b < a ? b : a;
  }
};

// Base and exponent may differ in type; the result has the base's. Integers to integer powers wrap;
// a negative exponent gives the truncated quotient (0 for a base of 0, which has none).
struct PowFn {
  template <typename T, typename E>
  static T Apply(T base, E exponent) {
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
  }
};

struct PReluFn {
  template <typename T>
  static T Apply(T x, T slope) {
    return x < T{0} ? MulFn::Apply(x, slope) : x;
  }
};

struct AndFn {
  static bool Apply(bool a, bool b) { return a && b; }
};
struct OrFn {
  static bool Apply(bool a, bool b) { return a || b; }
};
struct XorFn {
  static bool Apply(bool a, bool b) { return a != b; }
};

struct EqualFn {
  template <typename T>
  static bool Apply(T a, T b) {
    return a == b;
  }
};
struct LessFn {
  template <typename T>
  static bool Apply(T a, T b) {
    return a < b;
  }
};
struct LessOrEqualFn {
  template <typename T>
  static bool Apply(T a, T b) {
    return a <= b;
  }
};
struct GreaterFn {
  template <typename T>
  static bool Apply(T a, T b) {
    return a > b;
  }
};
struct GreaterOrEqualFn {
  template <typename T>
  static bool Apply(T a, T b) {
    return a >= b;
  }
};

struct BitwiseAndFn {
  template <typename T>
  static T Apply(T a, T b) {
    return static_cast<T>(a & b);
  }
};
struct BitwiseOrFn {
  template <typename T>
  static T Apply(T a, T b) {
    return static_cast<T>(a | b);
  }
};
struct BitwiseXorFn {
  template <typename T>
  static T Apply(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};

// A shift by the width or more, or by a negative count, moves every bit out; what comes in is 0.
struct ShiftLeftFn {
  template <typename T>
  static T Apply(T a, T count) {
    if (count < T{0} || count >= static_cast<T>(sizeof(T) * 8)) return 0;
    return static_cast<T>(static_cast<uint64_t>(a) << count);
  }
};

// As above, but what comes in is the sign.
struct ShiftRightFn {
  template <typename T>
  static T Apply(T a, T count) {
    if (count < T{0} || count >= static_cast<T>(sizeof(T) * 8))
      return a < T{0} ? static_cast<T>(-1) : T{0};
    return static_cast<T>(a >> count);
  }
};

}  // namespace pagefuse::onnx_ops
