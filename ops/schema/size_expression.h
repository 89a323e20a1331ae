// SPDX-License-Identifier: Apache-2.0
// Expressions of sizes in declarations: "H/G * D", "2 * W", "block_size * 584".
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "pagefuse/ir/tensor/shape.h"

namespace pagefuse {

// A tree of terms, operands before what combines them; the last one is the whole. Names are
// numbers in a list of the reader's.
struct SizeExpression {
  // kDivide is exact: 7/2 is no size.
  enum class Op : uint8_t { kNumber, kName, kAdd, kSubtract, kMultiply, kDivide, kModulo, kPower };
  struct Term {
    Op op = Op::kNumber;
    int64_t number = 0;  // kNumber
    int name = -1;       // kName
    int left = -1, right = -1;
  };

  std::vector<Term> terms;

  // The name, if the whole is one.
  std::optional<int> name() const;
};

// What an expression comes to.
struct Size {
  Dim dim;               // unknown if a name in it is
  bool possible = true;  // false: a division leaves a rest
};

// `values` has one dim a name. Numbers that pass int64 become the largest one, which no tensor has.
Size EvaluateSize(const SizeExpression& expression, std::span<const Dim> values);

// The one name that stands for nothing known, once, and what it must be so that the expression is
// `target`.
struct SolvedName {
  int name;
  Size size;
};
// nullopt if there is no such name, or no way to tell.
std::optional<SolvedName> SolveSize(const SizeExpression& expression, std::span<const Dim> values,
                                    const Dim& target);

}  // namespace pagefuse
