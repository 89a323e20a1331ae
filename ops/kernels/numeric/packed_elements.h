// SPDX-License-Identifier: Apache-2.0
// Elements of two or four bits, by index.
#pragma once

#include <cstdint>

namespace pagefuse {

// Element `index` of an array of elements of 2 or 4 bits, the first in the lowest bits.
constexpr uint8_t GetPacked(const uint8_t* packed, int64_t index, int bits) {
  return static_cast<uint8_t>(packed[index * bits / 8] >> (index * bits % 8) & ((1 << bits) - 1));
}
constexpr void SetPacked(uint8_t* packed, int64_t index, int bits, uint8_t code) {
  const int shift = static_cast<int>(index * bits % 8);
  const int mask = (1 << bits) - 1;
  uint8_t& byte = packed[index * bits / 8];
  byte = static_cast<uint8_t>((byte & ~(mask << shift)) | (code & mask) << shift);
}

// The value of a two's complement code of `bits` bits.
constexpr int8_t SignExtendPacked(uint8_t code, int bits) {
  const int sign = 1 << (bits - 1);
  return static_cast<int8_t>(((code & (2 * sign - 1)) ^ sign) - sign);
}

}  // namespace pagefuse
