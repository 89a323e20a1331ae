// SPDX-License-Identifier: Apache-2.0
// e4m3fn codes as bfloat16 words, for products whose factors may be in any common order.
#pragma once

#include <cstdint>

namespace pagefuse {

// Rows of codes, `stride` bytes from one to the next.
struct E4M3Rows {
  const uint8_t* codes = nullptr;
  int64_t rows = 0;
  int64_t size = 0;
  int64_t stride = 0;
};

inline constexpr int64_t kBf16RowMultiple = 64;
inline int64_t PaddedBf16Row(int64_t size) {
  return (size + kBf16RowMultiple - 1) / kBf16RowMultiple * kBf16RowMultiple;
}

// The values of the codes, exactly, in rows of PaddedBf16Row(size) words: zeros behind the last
// element, and within each 64 elements an order that only the SIMD target decides. So dot products
// of two such rows are those of the codes. NaN codes become 480. No pointer needs alignment.
void E4M3ToBf16InAnyOrder(const E4M3Rows& rows, uint16_t* words);

}  // namespace pagefuse
