// SPDX-License-Identifier: Apache-2.0
// Intervals of numbers, and what arithmetic makes of them: what is proved of the elements of a
// tensor of floats or integers.
#pragma once

#include <limits>

#include "pagefuse/base/data_type.h"

namespace pagefuse {

struct NumberRange {
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();

  // Nothing is known.
  static NumberRange Any() { return {}; }
  static NumberRange Between(double least, double most, double typical);

  bool finite() const;  // neither infinite nor NaN
  bool never_negative() const { return least >= 0; }
  double magnitude() const;
  bool may_be_infinite() const { return least == -kInfinity || most == kInfinity; }
  bool may_be_zero() const { return least <= 0 && most >= 0; }

  double least = -kInfinity, most = kInfinity;
  bool nan = true;  // may be NaN beside
  // About the root of the mean square: an estimate, no bound.
  double typical = 1;
};

NumberRange Negated(const NumberRange& x);
NumberRange Sum(const NumberRange& a, const NumberRange& b);
NumberRange Product(const NumberRange& a, const NumberRange& b);
NumberRange Quotient(const NumberRange& a, const NumberRange& b);
// One of both.
NumberRange Join(const NumberRange& a, const NumberRange& b);
// A sum of `count` products.
NumberRange SumOfProducts(const NumberRange& a, const NumberRange& b, double count);

// What is left in numbers of the type. A bound that none of them reaches is infinite, but where the
// estimate lies far below: of many factors, each as large as it may be, the product says nothing.
NumberRange Within(DataType type, NumberRange x);

}  // namespace pagefuse
