// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/edit/number_types.h"

namespace pagefuse {
namespace {

// Significant bits and exponent range of a type's numbers: all of them fit a type with at least as
// much of everything.
struct Range {
  int digits = 0;        // of the mantissa, or of an integer without its sign
  int max_exponent = 0;  // numbers are below 2^max_exponent
  int min_exponent = 0;  // of the smallest number, 0 for integers
  bool sign = false;
  bool floating = false;
};

Range RangeOf(DataType type) {
  switch (type) {
    case DataType::kFloat:
      return {24, 128, -149, true, true};
    case DataType::kDouble:
      return {53, 1024, -1074, true, true};
    case DataType::kFloat16:
      return {11, 16, -24, true, true};
    case DataType::kBfloat16:
      return {8, 128, -133, true, true};
    case DataType::kFloat8E4M3FN:
      return {4, 9, -9, true, true};
    case DataType::kFloat8E5M2:
      return {3, 16, -16, true, true};
    case DataType::kBool:
      return {1, 1, 0, false, false};
    default:
      break;
  }
  if (!IsInteger(type)) return {};
  const int bits = BitWidth(type) - (IsSigned(type) ? 1 : 0);
  return {bits, bits, 0, IsSigned(type), false};
}

}  // namespace

bool KeepsAllNumbers(DataType from, DataType to) {
  const Range a = RangeOf(from), b = RangeOf(to);
  if (a.digits == 0 || b.digits == 0 || to == DataType::kBool) return from == to;
  if (a.floating && !b.floating) return false;
  if (a.floating != b.floating) return a.digits <= b.digits && a.max_exponent <= b.max_exponent;
  return a.digits <= b.digits && a.max_exponent <= b.max_exponent &&
         a.min_exponent >= b.min_exponent && (b.sign || !a.sign);
}

}  // namespace pagefuse
