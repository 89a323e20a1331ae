// SPDX-License-Identifier: Apache-2.0
// Elements of every numeric type by their bits, as unsigned numbers in the same order: one code for all types of a
// size. Compiles for host and device.
#pragma once

#include <cstdint>
#include <type_traits>

#include "pagefuse/base/data_type.h"

namespace pagefuse::cuda {

struct ElementOrder {
  // Of floats: infinity, whose bits all magnitudes above are NaN. 0: integers.
  uint64_t infinity = 0;
  uint64_t sign = 0;  // the bit of the sign, where there is one

  template <typename Bits>
  constexpr bool IsNan(Bits bits) const {
    return infinity != 0 && static_cast<Bits>(bits & ~sign) > infinity;
  }
  // A larger number has a larger rank; -0 has that of 0. Not of NaN.
  template <typename Bits>
  constexpr Bits RankOf(Bits bits) const {
    if (infinity == 0) return static_cast<Bits>(bits ^ sign);
    if (bits == sign) return static_cast<Bits>(sign);
    return static_cast<Bits>((bits & sign) != 0 ? ~bits : bits | sign);
  }
};

constexpr ElementOrder ElementOrderOf(DataType type) {
  constexpr uint64_t kOne = 1;
  switch (type) {
    case DataType::kFloat:
      return {.infinity = 0x7F800000, .sign = kOne << 31};
    case DataType::kFloat16:
      return {.infinity = 0x7C00, .sign = kOne << 15};
    case DataType::kBfloat16:
      return {.infinity = 0x7F80, .sign = kOne << 15};
    case DataType::kDouble:
      return {.infinity = 0x7FF0000000000000, .sign = kOne << 63};
    case DataType::kInt8:
      return {.sign = kOne << 7};
    case DataType::kInt16:
      return {.sign = kOne << 15};
    case DataType::kInt32:
      return {.sign = kOne << 31};
    case DataType::kInt64:
      return {.sign = kOne << 63};
    default:
      return {};
  }
}

// What ranks of elements of this size are kept as.
template <typename Bits>
using RankKey = std::conditional_t<sizeof(Bits) == sizeof(uint64_t), uint64_t, uint32_t>;

// f.operator()<Bits>() for the unsigned number of an element's size, of the types that have an order; 1, an invalid
// argument, for others. Host code.
template <typename F>
int ForElementBits(DataType type, const F& f) {
  switch (type) {
    case DataType::kInt8:
    case DataType::kUint8:
      return f.template operator()<uint8_t>();
    case DataType::kFloat16:
    case DataType::kBfloat16:
    case DataType::kInt16:
    case DataType::kUint16:
      return f.template operator()<uint16_t>();
    case DataType::kFloat:
    case DataType::kInt32:
    case DataType::kUint32:
      return f.template operator()<uint32_t>();
    case DataType::kDouble:
    case DataType::kInt64:
    case DataType::kUint64:
      return f.template operator()<uint64_t>();
    default:
      return 1;  // cudaErrorInvalidValue
  }
}

}  // namespace pagefuse::cuda
