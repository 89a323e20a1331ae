// SPDX-License-Identifier: Apache-2.0
// Element types of tensors, with ONNX's own codes and names.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace pagefuse {

// The values are those of onnx.TensorProto.DataType, up to the ones newer than Debian's libonnx
// names.
enum class DataType : int32_t {
  kUndefined = 0,
  kFloat = 1,
  kUint8 = 2,
  kInt8 = 3,
  kUint16 = 4,
  kInt16 = 5,
  kInt32 = 6,
  kInt64 = 7,
  kString = 8,
  kBool = 9,
  kFloat16 = 10,
  kDouble = 11,
  kUint32 = 12,
  kUint64 = 13,
  kComplex64 = 14,
  kComplex128 = 15,
  kBfloat16 = 16,
  kFloat8E4M3FN = 17,
  kFloat8E4M3FNUZ = 18,
  kFloat8E5M2 = 19,
  kFloat8E5M2FNUZ = 20,
  kUint4 = 21,
  kInt4 = 22,
  kFloat4E2M1 = 23,
  kFloat8E8M0 = 24,
};
inline constexpr int32_t kMaxDataType = 24;

// The name used by the ONNX text syntax: "float", "int64", "bfloat16", "float8e4m3fn",
// "float4e2m1", ... "undefined" for kUndefined.
std::string_view DataTypeName(DataType type);

// The type with that text name; nullopt for an unknown name.
std::optional<DataType> DataTypeFromName(std::string_view name);

// The type with that ONNX code; nullopt for a code that ONNX does not define or that is 0.
std::optional<DataType> DataTypeFromCode(int32_t code);

// Bits of one element in memory; 4 for the packed types (two elements a byte, the first in the low
// nibble), 0 for strings and kUndefined.
int BitWidth(DataType type);

bool IsFloatingPoint(DataType type);  // every float, the 8- and 4-bit ones included
bool IsFloat8(DataType type);         // e4m3fn, e4m3fnuz, e5m2, e5m2fnuz, e8m0
bool IsInteger(DataType type);        // signed or unsigned, the 4-bit ones included; not bool
bool IsSigned(DataType type);         // integers and floats that have a sign

}  // namespace pagefuse
