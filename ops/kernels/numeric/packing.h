// SPDX-License-Identifier: Apache-2.0
// Elements narrower than a byte: how they lie in bytes.
#pragma once

#include <cstdint>

namespace pagefuse {

// Element i of width `bits` takes bits [i*bits, (i+1)*bits) of a little-endian bit stream. So two
// 4-bit elements share a byte, the first in the low nibble (ONNX's packing too), and eight 3-bit
// elements take three bytes.
constexpr int64_t PackedBytes(int64_t count, int bits) { return (count * bits + 7) / 8; }

// Writes PackedBytes(count, bits) bytes from one code a byte. Bits above the width are dropped,
// unused bits of the last byte are 0.
template <int bits>
constexpr void PackBits(const uint8_t* codes, int64_t count, uint8_t* packed) {
  static_assert(bits >= 1 && bits <= 8);
  uint32_t pending = 0;
  int pending_bits = 0;
  for (int64_t i = 0; i < count; ++i) {
    pending |= (codes[i] & ((1u << bits) - 1)) << pending_bits;
    pending_bits += bits;
    if (pending_bits < 8) continue;
    *packed++ = static_cast<uint8_t>(pending);
    pending >>= 8;
    pending_bits -= 8;
  }
  if (pending_bits > 0) *packed = static_cast<uint8_t>(pending);
}

// Reads PackedBytes(count, bits) bytes and writes one code a byte.
template <int bits>
constexpr void UnpackBits(const uint8_t* packed, int64_t count, uint8_t* codes) {
  static_assert(bits >= 1 && bits <= 8);
  uint32_t pending = 0;
  int pending_bits = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (pending_bits < bits) {
      pending |= static_cast<uint32_t>(*packed++) << pending_bits;
      pending_bits += 8;
    }
    codes[i] = static_cast<uint8_t>(pending & ((1u << bits) - 1));
    pending >>= bits;
    pending_bits -= bits;
  }
}

// Element `index` of a 4-bit array.
constexpr uint8_t GetNibble(const uint8_t* packed, int64_t index) {
  return static_cast<uint8_t>(packed[index / 2] >> (index % 2 * 4) & 15);
}
constexpr void SetNibble(uint8_t* packed, int64_t index, uint8_t code) {
  const int shift = static_cast<int>(index % 2 * 4);
  packed[index / 2] =
      static_cast<uint8_t>((packed[index / 2] & ~(15 << shift)) | (code & 15) << shift);
}

// The value of a two's complement 4-bit code.
constexpr int8_t SignExtendNibble(uint8_t code) {
  return static_cast<int8_t>(((code & 15) ^ 8) - 8);
}

}  // namespace pagefuse
