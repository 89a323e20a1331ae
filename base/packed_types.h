// SPDX-License-Identifier: Apache-2.0
// Element types narrower than a byte: four bits, two to a byte, or two bits, four to a byte; the
// first element is in the lowest bits.
#pragma once

#include "pagefuse/base/data_type.h"

namespace pagefuse {

// Integers of two bits, by ONNX's codes.
inline constexpr DataType kUint2 = DataType{25};
inline constexpr DataType kInt2 = DataType{26};
// The last code that DataTypeFromCode knows.
inline constexpr int32_t kLastDataType = 26;

// True for types of two and of four bits.
inline bool IsPacked(DataType type) { return BitWidth(type) == 2 || BitWidth(type) == 4; }

}  // namespace pagefuse
