// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/analysis/functions/number_range.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace pagefuse {
namespace {

constexpr double kInfinity = NumberRange::kInfinity;

// 0 times infinity is 0 as a bound; that it is NaN is said beside.
double Times(double a, double b) { return a == 0 || b == 0 ? 0 : a * b; }

double LargestOf(DataType type) {
  switch (type) {
    case DataType::kDouble:
      return std::numeric_limits<double>::max();
    case DataType::kFloat16:
      return 65504;
    case DataType::kBfloat16:
      return 0x1.FEp127;
    case DataType::kFloat:
      return std::numeric_limits<float>::max();
    default:
      return IsFloat8(type) ? 240 : kInfinity;
  }
}

}  // namespace

NumberRange NumberRange::Between(double least, double most, double typical) {
  return {.least = least, .most = most, .nan = false, .typical = typical};
}

bool NumberRange::finite() const { return !nan && !may_be_infinite(); }

double NumberRange::magnitude() const { return std::max(std::abs(least), std::abs(most)); }

NumberRange Negated(const NumberRange& x) {
  return {.least = -x.most, .most = -x.least, .nan = x.nan, .typical = x.typical};
}

NumberRange Sum(const NumberRange& a, const NumberRange& b) {
  const bool cancel = (a.most == kInfinity && b.least == -kInfinity) ||
                      (a.least == -kInfinity && b.most == kInfinity);
  return {.least = a.least == -kInfinity ? a.least : a.least + b.least,
          .most = a.most == kInfinity ? a.most : a.most + b.most,
          .nan = a.nan || b.nan || cancel,
          .typical = std::hypot(a.typical, b.typical)};
}

NumberRange Product(const NumberRange& a, const NumberRange& b) {
  const std::array ends = {Times(a.least, b.least), Times(a.least, b.most), Times(a.most, b.least),
                           Times(a.most, b.most)};
  const bool zero_times_infinity =
      (a.may_be_infinite() && b.may_be_zero()) || (b.may_be_infinite() && a.may_be_zero());
  return {.least = std::ranges::min(ends),
          .most = std::ranges::max(ends),
          .nan = a.nan || b.nan || zero_times_infinity,
          .typical = a.typical * b.typical};
}

NumberRange Quotient(const NumberRange& a, const NumberRange& b) {
  const double typical = b.typical > 0 ? a.typical / b.typical : a.typical;
  if (b.may_be_zero()) return {.typical = typical};
  NumberRange inverse = {.least = 1 / b.most, .most = 1 / b.least, .nan = b.nan};
  NumberRange quotient = Product(a, inverse);
  quotient.nan = quotient.nan || (a.may_be_infinite() && b.may_be_infinite());
  quotient.typical = typical;
  return quotient;
}

NumberRange Join(const NumberRange& a, const NumberRange& b) {
  // What hides scores, or marks what is none, is no typical number.
  constexpr double kMark = 5000;
  const double more = std::max(a.typical, b.typical), less = std::min(a.typical, b.typical);
  return {.least = std::min(a.least, b.least),
          .most = std::max(a.most, b.most),
          .nan = a.nan || b.nan,
          .typical = more < kMark ? more : less};
}

NumberRange SumOfProducts(const NumberRange& a, const NumberRange& b, double count) {
  const NumberRange each = Product(a, b);
  return {.least = Times(std::min(each.least, 0.0), count),
          .most = Times(std::max(each.most, 0.0), count),
          .nan = a.nan || b.nan || each.may_be_infinite(),
          .typical = std::sqrt(count) * each.typical};
}

NumberRange Within(DataType type, NumberRange x) {
  constexpr double kFarBelow = 64, kRounded = 1 + 0x1p-20;
  const double largest = LargestOf(type);
  const bool estimated = x.typical * kFarBelow <= largest;
  const auto bound = [&](double end) {
    if (std::isinf(end) || std::abs(end) <= largest) return end;
    const double held = estimated || std::abs(end) <= largest * kRounded ? largest : kInfinity;
    return std::copysign(held, end);
  };
  x.least = bound(x.least);
  x.most = bound(x.most);
  return x;
}

}  // namespace pagefuse
