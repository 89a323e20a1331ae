// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/base/data_type.h"

#include <array>

#include "pagefuse/base/packed_types.h"

namespace pagefuse {
namespace {

struct TypeRow {
  std::string_view name;
  int bits;
  bool floating;
  bool integer;
  bool is_signed;
};

// Indexed by ONNX code.
constexpr std::array<TypeRow, kLastDataType + 1> kTypes = {{
    {"undefined", 0, false, false, false},    {"float", 32, true, false, true},
    {"uint8", 8, false, true, false},         {"int8", 8, false, true, true},
    {"uint16", 16, false, true, false},       {"int16", 16, false, true, true},
    {"int32", 32, false, true, true},         {"int64", 64, false, true, true},
    {"string", 0, false, false, false},       {"bool", 8, false, false, false},
    {"float16", 16, true, false, true},       {"double", 64, true, false, true},
    {"uint32", 32, false, true, false},       {"uint64", 64, false, true, false},
    {"complex64", 64, false, false, true},    {"complex128", 128, false, false, true},
    {"bfloat16", 16, true, false, true},      {"float8e4m3fn", 8, true, false, true},
    {"float8e4m3fnuz", 8, true, false, true}, {"float8e5m2", 8, true, false, true},
    {"float8e5m2fnuz", 8, true, false, true}, {"uint4", 4, false, true, false},
    {"int4", 4, false, true, true},           {"float4e2m1", 4, true, false, true},
    {"float8e8m0", 8, true, false, false},    {"uint2", 2, false, true, false},
    {"int2", 2, false, true, true},
}};

const TypeRow& Row(DataType type) { return kTypes[static_cast<size_t>(type)]; }

}  // namespace

std::string_view DataTypeName(DataType type) { return Row(type).name; }

std::optional<DataType> DataTypeFromName(std::string_view name) {
  for (int32_t code = 1; code <= kLastDataType; ++code) {
    if (kTypes[code].name == name) return static_cast<DataType>(code);
  }
  return std::nullopt;
}

std::optional<DataType> DataTypeFromCode(int32_t code) {
  if (code < 1 || code > kLastDataType) return std::nullopt;
  return static_cast<DataType>(code);
}

int BitWidth(DataType type) { return Row(type).bits; }
bool IsFloatingPoint(DataType type) { return Row(type).floating; }
bool IsFloat8(DataType type) { return Row(type).floating && Row(type).bits == 8; }
bool IsInteger(DataType type) { return Row(type).integer; }
bool IsSigned(DataType type) { return Row(type).is_signed; }

}  // namespace pagefuse
