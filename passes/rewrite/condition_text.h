// SPDX-License-Identifier: Apache-2.0
// Conditions and derivations of rules as text: `rank(weight) == 1`, `@half * 2`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/passes/rewrite/condition_value.h"
#include "pagefuse/passes/rewrite/rule.h"
#include "pagefuse/passes/rewrite/text_place.h"

namespace pagefuse {

// Conditions with commas between them, each named by its text. What they may say:
//
//   rank(v), dim(v, i), size(v), value(v), uses(v), type(v), @name, numbers, "text", + - * / // %
//   compared by == != < <= > >=, or `in` a list of types or numbers (functions of values first);
//   dims are compared by proof
//   constant(v), scalar(v), float(v), output(v), present(v), same_shape(a, b), same_type(a, b),
//   same_rows(a, b) (shapes from the second dim on)
//   not <condition>
//   what plug-ins add, for a value or several
//
// A condition that does not hold says so with the values: `dim(weight, 0) == dim(x, -1): 64 and 80`.
// What is not known holds no condition.
struct ParsedCondition {
  Condition condition;
  std::vector<std::string_view> names;  // of values, where the text has them
};
absl::StatusOr<std::vector<ParsedCondition>> ParseConditions(std::string_view text,
                                                             const ConditionFunctions& functions,
                                                             const PlaceError& error);

// `@eps = @epsilon`, `@half = dim(x, -1) // 2`, `@scale = @scale else 1`: numbers without a point
// give an integer attribute, others a float. An attribute alone keeps its kind.
struct ParsedDerivation {
  std::string name;
  Derivation derivation;
  std::vector<std::string_view> names;
};
absl::StatusOr<ParsedDerivation> ParseDerivation(std::string_view text,
                                                 const ConditionFunctions& functions,
                                                 const PlaceError& error);

}  // namespace pagefuse
