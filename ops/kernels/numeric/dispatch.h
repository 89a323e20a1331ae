// SPDX-License-Identifier: Apache-2.0
// From a DataType to the C++ type of its elements, for templates.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "pagefuse/base/data_type.h"
#include "pagefuse/ops/kernels/numeric/small_float.h"

namespace pagefuse {

// DataTypeOf<float> is DataType::kFloat. Packed 4-bit types and strings have no element type.
template <typename T>
inline constexpr DataType DataTypeOf = DataType::kUndefined;
template <>
inline constexpr DataType DataTypeOf<float> = DataType::kFloat;
template <>
inline constexpr DataType DataTypeOf<double> = DataType::kDouble;
template <>
inline constexpr DataType DataTypeOf<uint8_t> = DataType::kUint8;
template <>
inline constexpr DataType DataTypeOf<int8_t> = DataType::kInt8;
template <>
inline constexpr DataType DataTypeOf<uint16_t> = DataType::kUint16;
template <>
inline constexpr DataType DataTypeOf<int16_t> = DataType::kInt16;
template <>
inline constexpr DataType DataTypeOf<uint32_t> = DataType::kUint32;
template <>
inline constexpr DataType DataTypeOf<int32_t> = DataType::kInt32;
template <>
inline constexpr DataType DataTypeOf<uint64_t> = DataType::kUint64;
template <>
inline constexpr DataType DataTypeOf<int64_t> = DataType::kInt64;
template <>
inline constexpr DataType DataTypeOf<bool> = DataType::kBool;
template <>
inline constexpr DataType DataTypeOf<Float16> = DataType::kFloat16;
template <>
inline constexpr DataType DataTypeOf<Bfloat16> = DataType::kBfloat16;
template <>
inline constexpr DataType DataTypeOf<Float8E4M3FN> = DataType::kFloat8E4M3FN;
template <>
inline constexpr DataType DataTypeOf<Float8E4M3FNUZ> = DataType::kFloat8E4M3FNUZ;
template <>
inline constexpr DataType DataTypeOf<Float8E5M2> = DataType::kFloat8E5M2;
template <>
inline constexpr DataType DataTypeOf<Float8E5M2FNUZ> = DataType::kFloat8E5M2FNUZ;
template <>
inline constexpr DataType DataTypeOf<Float8E8M0> = DataType::kFloat8E8M0;

namespace internal {

template <typename T, typename F>
absl::Status CallWithType(F& f) {
  if constexpr (std::is_void_v<decltype(f.template operator()<T>())>) {
    f.template operator()<T>();
    return absl::OkStatus();
  } else {
    return f.template operator()<T>();
  }
}

template <typename... Ts, typename F>
absl::Status DispatchAmong(DataType type, F& f) {
  absl::Status status;
  if (((type == DataTypeOf<Ts> ? (status = CallWithType<Ts>(f), true) : false) || ...)) {
    return status;
  }
  return absl::UnimplementedError(
      absl::StrCat("element type ", std::string(DataTypeName(type)), " is not supported here"));
}

}  // namespace internal

// Calls f.operator()<T>() with the element type of `type`: DispatchType(x.dtype, [&]<typename T>()
// { ... }). The callable returns nothing or a Status, which is passed on. Unimplemented for types
// without an element type (strings, packed 4-bit types, complex).
template <typename F>
absl::Status DispatchType(DataType type, F&& f) {
  return internal::DispatchAmong<float, double, uint8_t, int8_t, uint16_t, int16_t, uint32_t,
                                 int32_t, uint64_t, int64_t, bool, Float16, Bfloat16, Float8E4M3FN,
                                 Float8E4M3FNUZ, Float8E5M2, Float8E5M2FNUZ, Float8E8M0>(type, f);
}

// float, float16 and bfloat16: the types that models compute in.
template <typename F>
absl::Status DispatchFloat(DataType type, F&& f) {
  return internal::DispatchAmong<float, Float16, Bfloat16>(type, f);
}

// int32 and int64: the types of indices.
template <typename F>
absl::Status DispatchIndex(DataType type, F&& f) {
  return internal::DispatchAmong<int32_t, int64_t>(type, f);
}

// An element to another type, as ONNX Cast does it: floats round to nearest even, float to integer
// truncates. Where C++ leaves the result open (out of range, NaN) integers saturate, and NaN
// becomes 0.
template <typename To, typename From>
constexpr To ConvertElement(From x, bool saturate = true) {
  if constexpr (std::is_same_v<To, From>) {
    return x;
  } else if constexpr (kIsSmallFloat<From>) {
    return ConvertElement<To>(static_cast<float>(x), saturate);
  } else if constexpr (kIsSmallFloat<To> && sizeof(To) == 1) {
    return To(static_cast<float>(x), saturate ? Overflow::kSaturate : Overflow::kSpecial);
  } else if constexpr (kIsSmallFloat<To>) {
    return To(static_cast<float>(x));
  } else if constexpr (std::is_same_v<To, bool>) {
    return x != From(0);
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    if (x != x) return To(0);
    // The bounds as From: the upper one rounds up to a power of two where To is wider than the
    // mantissa, hence >=.
    if (x <= static_cast<From>(std::numeric_limits<To>::min()))
      return std::numeric_limits<To>::min();
    if (x >= static_cast<From>(std::numeric_limits<To>::max()))
      return std::numeric_limits<To>::max();
    return static_cast<To>(x);
  } else {
    return static_cast<To>(x);
  }
}

}  // namespace pagefuse
