// SPDX-License-Identifier: Apache-2.0
// Lists the variants of a rule's pattern: every choice among its parts.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/ir/graph/model.h"
#include "pagefuse/passes/rewrite/text/rule_sections.h"
#include "pagefuse/passes/rewrite/text_place.h"

namespace pagefuse {

struct Variant {
  std::string name;                                        // "pow sqrt-div"
  std::string text;                                        // as Rule::MatchText takes it
  std::vector<std::pair<std::string, std::string>> parts;  // the form of each part
};

// OK if the text is a function that parses. `names` gets its values, `attributes` its @names.
struct TextNames {
  std::vector<std::string> values, attributes;
};
absl::Status CheckFunctionText(std::string_view text, const PlaceError& error, TextNames* names);
// The function that the text is.
absl::StatusOr<Function> ParseFunctionText(std::string_view text, const PlaceError& error);

// The pattern and the further ones of `or`, with every choice of parts put in.
absl::StatusOr<std::vector<Variant>> VariantsOf(const RuleParts& rule, const PlaceError& error);

}  // namespace pagefuse
