// SPDX-License-Identifier: Apache-2.0
// Registers of elementwise programs, of 4 or 8 bytes, and elements in another type. Device code alone.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "pagefuse/ops/kernels/cuda/element.h"
#include "pagefuse/ops/kernels/cuda/elementwise.h"

namespace pagefuse::cuda {

// What `Word` holds: the bits of a float in its low half, of a double, or an integer extended to it.
template <typename Word>
struct ElementWord {
  using Signed = std::make_signed_t<Word>;

  __device__ static float AsFloat(Word word) {
    return __uint_as_float(static_cast<uint32_t>(word));
  }
  __device__ static Word Of(float x) { return __float_as_uint(x); }
  __device__ static double AsDouble(Word word) {
    return __longlong_as_double(static_cast<int64_t>(word));
  }
  __device__ static Word Of(double x) { return static_cast<Word>(__double_as_longlong(x)); }
  __device__ static Word Of(bool x) { return x ? 1 : 0; }
  __device__ static Word Of(Signed x) { return static_cast<Word>(x); }
  __device__ static Word Of(Word x) { return x; }
};

// As Cast has it: truncated, saturated, NaN is 0 (ConvertElement).
template <typename Int, typename Float>
__device__ Int Saturated(Float x) {
  if (x != x) return 0;
  if (x <= static_cast<Float>(std::numeric_limits<Int>::min()))
    return std::numeric_limits<Int>::min();
  if (x >= static_cast<Float>(std::numeric_limits<Int>::max()))
    return std::numeric_limits<Int>::max();
  return static_cast<Int>(x);
}

template <typename Word, typename Float>
__device__ Word IntegerOf(Float x, DataType type) {
  using W = ElementWord<Word>;
  using Signed = typename W::Signed;
  switch (type) {
    case DataType::kInt8:
      return W::Of(static_cast<Signed>(Saturated<int8_t>(x)));
    case DataType::kUint8:
      return Saturated<uint8_t>(x);
    case DataType::kInt16:
      return W::Of(static_cast<Signed>(Saturated<int16_t>(x)));
    case DataType::kUint16:
      return Saturated<uint16_t>(x);
    case DataType::kInt32:
      return W::Of(static_cast<Signed>(Saturated<int32_t>(x)));
    case DataType::kUint32:
      return Saturated<uint32_t>(x);
    case DataType::kInt64:
      return static_cast<Word>(Saturated<int64_t>(x));
    case DataType::kUint64:
      return static_cast<Word>(Saturated<uint64_t>(x));
    default:  // bool
      return W::Of(x != 0);
  }
}

// A result as the type has it: rounded, or wrapped.
template <typename Word>
__device__ Word Narrowed(Word word, DataType type) {
  using W = ElementWord<Word>;
  using Signed = typename W::Signed;
  switch (type) {
    case DataType::kFloat16:
      return W::Of(ToFloat(FromFloat<Half>(W::AsFloat(word))));
    case DataType::kBfloat16:
      return W::Of(ToFloat(FromFloat<Bfloat>(W::AsFloat(word))));
    case DataType::kInt8:
      return W::Of(static_cast<Signed>(static_cast<int8_t>(word)));
    case DataType::kUint8:
      return static_cast<uint8_t>(word);
    case DataType::kInt16:
      return W::Of(static_cast<Signed>(static_cast<int16_t>(word)));
    case DataType::kUint16:
      return static_cast<uint16_t>(word);
    case DataType::kInt32:
      return W::Of(static_cast<Signed>(static_cast<int32_t>(word)));
    case DataType::kUint32:
      return static_cast<uint32_t>(word);
    default:
      return word;
  }
}

template <typename Word, typename From>
__device__ Word CastTo(DataType type, From x) {
  using W = ElementWord<Word>;
  switch (ElementKindOf(type)) {
    case ElementKind::kFloat:
      return W::Of(static_cast<float>(x));
    case ElementKind::kDouble:
      return W::Of(static_cast<double>(x));
    default:
      break;
  }
  if constexpr (std::is_floating_point_v<From>) {
    return IntegerOf<Word>(x, type);
  } else {
    return type == DataType::kBool ? W::Of(x != 0) : static_cast<Word>(x);
  }
}

}  // namespace pagefuse::cuda
