// SPDX-License-Identifier: Apache-2.0
// Rules as text: a file of patterns, conditions and replacements, as docs/adding_a_fusion.md shows.
//
//   # What it is about, which becomes the rule's description.
//   # rule: acme-rms-norm
//   # before: attention            (or `# after:`; else behind the last pass that recognises)
//   # metadata: slots
//   # where: rank(weight) == 1, dim(weight, 0) == dim(x, -1)
//   # let: @eps = @epsilon
//   (x, weight) => (y) { square = either.Square (x)  ... }
//   # ---- either: Square pow      a part in one of its forms
//   (x) => (s) { ... }
//   # ---- or: fused               a further whole form
//   (x, weight) => (y) { ... }
//   # ---- after
//   (x, weight) => (y) { ... }
//
// `# match-op: acme.Op` in place of the first text matches the body of an op as text. A new `# rule:`
// starts the next rule.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/passes/rewrite/condition_value.h"
#include "pagefuse/passes/rewrite/rule.h"
#include "pagefuse/passes/rewrite/text/rewrite.h"
#include "pagefuse/passes/rewrite/text/rule_sections.h"

namespace pagefuse {

// A rule, and the pass before or after which it stands; both empty: the place of rules that recognise.
struct TextRule {
  Rule rule;
  std::string before, after;
};

// All forms of a rule together may be this many.
inline constexpr int kMaxVariants = 256;

// What the rules of a file are a pass of: "mine" of "dir/mine.rules.txt".
std::string RulePassName(const std::string& path);

// The rules of a file, in order; where they say that they stand is left out.
absl::StatusOr<std::vector<Rule>> ParseRules(const RuleFile& file);

// One rule of a file that was cut into its parts. InvalidArgument with file, line, column and a mark under it.
absl::StatusOr<TextRule> MakeRule(const RuleParts& parts, const ConditionFunctions& functions,
                                  const PlaceError& error);

}  // namespace pagefuse
