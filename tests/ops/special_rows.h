// SPDX-License-Identifier: Apache-2.0
// Rows with what encoders may get wrong.
#pragma once

#include <cstdint>

#include "op_test.h"

namespace pagefuse {

// Rows of bfloat16, of 128 elements or more, some of them changed: of each four the second has NaNs of
// both signs and -inf, the third a NaN, +inf and -0, the last nothing but zeros and subnormals.
inline Tensor WithSpecials(Tensor rows) {
  auto* bits = static_cast<uint16_t*>(rows.mutable_data());
  const int64_t size = rows.dims().back();
  for (int64_t row = 0; row < rows.size() / size; ++row, bits += size) {
    if (row % 4 == 1) bits[3] = 0x7FC1, bits[17] = 0xFFC2, bits[70] = 0xFF80;
    if (row % 4 == 2) bits[40] = 0x7F80, bits[41] = 0xFFC0, bits[5] = 0x8000;
    if (row % 4 != 3) continue;
    constexpr uint16_t kSmall[8] = {1, 0x8003, 0, 0x8000, 0x0040, 0x807F, 0x0080, 0};
    for (int64_t i = 0; i < size; ++i) bits[i] = kSmall[i % 8];
  }
  return rows;
}

// The same case with these in an input.
inline OpCase WithSpecials(OpCase op_case, size_t input) {
  op_case.inputs[input] = WithSpecials(op_case.inputs[input]);
  op_case.decomposes = false;
  return op_case;
}

}  // namespace pagefuse
