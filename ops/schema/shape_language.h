// SPDX-License-Identifier: Apache-2.0
// Parses the language of declared shapes and types, which op_def.h explains.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/ops/schema/size_expression.h"

namespace pagefuse {

// "format = fp8", "transB", "not indices".
struct PortCondition {
  bool negated = false;
  std::string name;                  // of an attribute or a port
  std::optional<std::string> value;  // what the attribute is; absent: a port that is given, or
                                     // an attribute that is not 0
};

// The first whose condition holds; the last one may have none.
template <typename T>
using Choice = std::vector<std::pair<std::optional<PortCondition>, T>>;

// "[NB, ..., D]"
struct DimList {
  std::vector<SizeExpression> before;
  std::string rest;                   // "..." or "...'", empty where there is none
  std::vector<SizeExpression> after;  // empty without rest
  std::string text;

  int size() const { return static_cast<int>(before.size() + after.size()); }
};

// "T' <= T"
struct Relation {
  enum class Kind { kEqual, kAtMost, kAtLeast };
  SizeExpression left, right;
  Kind kind = Kind::kEqual;
  std::string text;
};

// What the text of one port says. One of `as`, `chosen` and `any` is set; none: no shape is said.
struct ShapePattern {
  std::string as;  // the name of the port that has the same shape
  Choice<DimList> chosen;
  std::vector<DimList> any;  // one of these
  std::vector<Relation> relations;
};

// The names of sizes in the order in which they were met; an expression has their numbers.
using SizeNames = std::vector<std::string>;

// InvalidArgument with the text and where it goes wrong.
absl::StatusOr<ShapePattern> ParseShapePattern(std::string_view text, SizeNames& names);
absl::StatusOr<Choice<SizeExpression>> ParseSizes(std::string_view text, SizeNames& names);
// "C", "uint8 if format = fp8, else bfloat16".
absl::StatusOr<Choice<std::string>> ParseTypes(std::string_view text);
absl::StatusOr<PortCondition> ParseCondition(std::string_view text);

// "format = fp8"
std::string ToString(const PortCondition& condition);

}  // namespace pagefuse
