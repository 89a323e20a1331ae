// SPDX-License-Identifier: Apache-2.0
// Splits a file of rules and ops into its parts, as views into the file's text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/passes/rewrite/text_place.h"

namespace pagefuse {

// `# key: value`
struct RuleKey {
  std::string_view key, value;
};

// A function text under `# ---- either: Square pow`, `# ---- or: fused` or `# ---- after`; of an op
// under `# ---- without: bias`.
struct RuleSection {
  std::string_view title;  // the whole line
  std::string_view kind;   // "either", "or", "after", "without"
  std::string_view part;   // either: the part's name
  std::string_view name;   // either, or: the form's; without: ports
  std::string_view text;
  bool is_shared = false;  // a part for all rules of the file
};

struct RuleParts {
  std::string description;
  std::string_view name;
  std::vector<RuleKey> keys;  // but the name, in order
  std::string_view pattern;   // the first text; blank where there is none
  std::vector<RuleSection> sections;
};

// What stands from `# op:` to the next op or rule.
struct OpParts {
  std::string doc;        // behind the name, or else the comments above
  std::string_view name;  // with its domain: "acme.Scale"
  std::vector<RuleKey> keys;
  std::string_view text;              // of the function
  std::vector<RuleSection> sections;  // further ones
};

struct TextParts {
  std::vector<OpParts> ops;
  std::vector<RuleParts> rules;
};

// Parts in front of the first rule are among the sections of each.
absl::StatusOr<TextParts> CutText(std::string_view text, const PlaceError& error);
// Of a file that holds rules alone.
absl::StatusOr<std::vector<RuleParts>> CutRules(std::string_view text, const PlaceError& error);

// What the first line says of all rules together, `# pass: ...`; empty if it does not.
std::string_view PassDescriptionOf(std::string_view text);

// Without white space at its ends.
std::string_view Trim(std::string_view text);
// True if nothing stands there but blanks and comments.
bool IsBlankText(std::string_view text);

}  // namespace pagefuse
