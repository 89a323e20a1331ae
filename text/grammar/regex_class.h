// SPDX-License-Identifier: Apache-2.0
// Reads what stands for one character in a regular expression: escapes and classes.
#pragma once

#include <cstddef>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/text/grammar/character_set.h"

namespace pagefuse {

// A place in an expression, which is UTF-8.
struct RegexCursor {
  std::string_view text;
  size_t at = 0;

  bool AtEnd() const { return at == text.size(); }
  // Nothing of a character past the end.
  char32_t Next();
  bool Take(std::string_view expected);
  // InvalidArgument: what was expected at this place.
  absl::Status Expected(std::string_view what) const;
};

CharacterSet RegexAnyButLineEnds();
// Behind a backslash. `in_class`: also "\b" and "\-".
absl::StatusOr<CharacterSet> ReadRegexEscape(RegexCursor& cursor, bool in_class);
// Behind the opening bracket, up to and including the closing one.
absl::StatusOr<CharacterSet> ReadRegexClass(RegexCursor& cursor);

}  // namespace pagefuse
