// SPDX-License-Identifier: Apache-2.0
// Writes a value into a field of a format: `%8.2f` of Python's `%`, or `{:>8.2f}` of str.format.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

#include "pagefuse/text/template/template_value.h"

namespace pagefuse::chat_template {

struct FieldLayout {
  std::string fill = " ";
  char align =
      '\0';         // '<', '>', '^'; '=': between sign and digits; none: as the value's kind has it
  char sign = '-';  // '+', ' '; '-' for negative numbers only
  bool alternate = false;
  char grouping = '\0';  // ',' or '_' between thousands
  int64_t width = 0;
  std::optional<int64_t> precision = {};
  char type = '\0';  // d x X o b c e E f F g G % s r; none: as the value prints
};

// InvalidArgument where the value is not of the field's type; ResourceExhausted for fields that are
// too wide.
absl::StatusOr<MarkedText> LaidOut(Work& work, const Value& value, const FieldLayout& layout);

}  // namespace pagefuse::chat_template
