// SPDX-License-Identifier: Apache-2.0
// Reads the regular expressions of ECMAScript, as far as they are regular.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"

#include "pagefuse/text/grammar/char_automaton.h"
#include "pagefuse/text/grammar/grammar_budget.h"

namespace pagefuse {

enum class RegexMatch {
  kWhole,     // the whole text matches
  kAnywhere,  // a part of it does: "^" and "$" say where
};

// Alternatives, groups, classes, `\d \w \s` and their opposites, escapes of characters, counted
// repetition, "^" and "$", which may stand anywhere. Characters are code points, as with the flag
// "u". `.` is all but line ends.
//
// InvalidArgument naming the place in the expression and what was expected: what is not regular
// (references back, assertions other than "^" and "$") and `\p`. ResourceExhausted past the budget.
absl::StatusOr<CharDfa> ParseRegex(std::string_view regex, RegexMatch match,
                                   const GrammarBudget& budget);

}  // namespace pagefuse
