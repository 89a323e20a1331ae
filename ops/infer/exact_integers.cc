// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/infer/exact_integers.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/numbers.h"

namespace pagefuse {
namespace {

constexpr double kLongestSequence = 1 << 23;
constexpr double kLongestAxis = 1 << 30;

// Digits of the mantissa, the leading one included; 0 for other types.
int MantissaDigits(DataType type) {
  switch (type) {
    case DataType::kDouble:
      return 53;
    case DataType::kFloat:
      return 24;
    case DataType::kFloat16:
      return 11;
    case DataType::kBfloat16:
      return 8;
    case DataType::kFloat8E4M3FN:
    case DataType::kFloat8E4M3FNUZ:
      return 4;
    case DataType::kFloat8E5M2:
    case DataType::kFloat8E5M2FNUZ:
      return 3;
    case DataType::kFloat4E2M1:
      return 2;
    default:
      return 0;
  }
}

// The most that a symbol is: a quotient is that much less than a sequence (Dim::FloorDiv).
double LongestOf(const std::string& symbol) {
  const size_t at = symbol.rfind("//");
  int64_t divisor = 0;
  const bool divided =
      at != std::string::npos && absl::SimpleAtoi(symbol.substr(at + 2), &divisor) && divisor > 0;
  return divided ? kLongestSequence / static_cast<double>(divisor) : kLongestSequence;
}

// The dim with its sizes as long or as short as makes it greatest.
double GreatestOf(const Dim& dim) {
  double most = 0;
  for (const auto& [symbol, factor] : dim.terms()) {
    most = std::max(most, LongestOf(symbol) * static_cast<double>(factor));
  }
  return static_cast<double>(dim.offset()) + std::min(most, kLongestAxis);
}

}  // namespace

std::optional<IntegerRange> ExactIntegers(DataType type) {
  if (type == DataType::kBool) return IntegerRange{0, 1};
  if (IsInteger(type)) {
    const double end = std::ldexp(1.0, BitWidth(type) - (IsSigned(type) ? 1 : 0));
    return IntegerRange{IsSigned(type) ? -end : 0, end - 1};
  }
  const int digits = MantissaDigits(type);
  if (digits == 0) return std::nullopt;
  const double most = std::ldexp(1.0, digits);
  return IntegerRange{-most, most};
}

std::optional<IntegerRange> RangeBetween(const Dim& least, const Dim& most) {
  if (!least.known() || !most.known()) return std::nullopt;
  return IntegerRange{-GreatestOf(Dim(0) - least), GreatestOf(most)};
}

bool HoldsExactly(DataType type, const Dim& least, const Dim& most) {
  const auto held = ExactIntegers(type);
  const auto asked = RangeBetween(least, most);
  return held && asked && held->least <= asked->least && asked->most <= held->most;
}

bool HoldsNumbersOf(DataType type, DataType of) {
  const auto held = ExactIntegers(type), asked = ExactIntegers(of);
  return held && asked && held->least <= std::max(asked->least, -kLongestSequence) &&
         std::min(asked->most, kLongestSequence) <= held->most;
}

}  // namespace pagefuse
