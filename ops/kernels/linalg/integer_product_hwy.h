// SPDX-License-Identifier: Apache-2.0
// The vector loops of integer_product.cc.
#pragma once

#include <cstdint>

#include "pagefuse/ops/kernels/linalg/integer_product.h"

namespace pagefuse {

inline int32_t ByteAt(const uint8_t* row, bool is_signed, int64_t i) {
  return is_signed ? static_cast<int8_t>(row[i]) : row[i];
}

// Pairs of row r of a, less its zero point: words[p] has element 2 p in its low half and 2 p + 1 in
// its high half, both int16. Elements from k on are 0; `pairs` words are written.
void PackIntegerPairs(const uint8_t* row, bool is_signed, int32_t zero, int64_t k, int64_t pairs,
                      uint32_t* words);

// Rows of y = packed pairs * b, for columns [begin, end) of b: `rows` rows, `pairs` words apart in
// `a`. `pairs` is a multiple of 4 and covers k.
struct PackedRows {
  const uint32_t* words = nullptr;
  int64_t rows = 0, pairs = 0;
};
void MultiplyPackedRows(const PackedRows& a, const ByteRows& b, int64_t k, int64_t begin,
                        int64_t end, int32_t* y, int64_t y_stride);

}  // namespace pagefuse
