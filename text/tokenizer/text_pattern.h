// SPDX-License-Identifier: Apache-2.0
// The pattern that a step of a tokenizer searches for: a string, or a regular expression.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/text/json_fields.h"
#include "pagefuse/text/tokenizer/split_regex.h"

namespace pagefuse {

class TextPattern {
 public:
  // {"String": ...} or {"Regex": ...}.
  static absl::StatusOr<TextPattern> FromJson(const JsonFields& pattern);
  static absl::StatusOr<TextPattern> Regex(std::string_view regex);
  static TextPattern String(std::string text);

  // As SplitRegex::ForEachMatch; an empty string is found nowhere.
  absl::Status ForEachMatch(std::string_view text,
                            const std::function<void(size_t, size_t)>& found) const;
  // `text` with `content` in place of each match; ResourceExhausted if that has more than `most` bytes.
  absl::StatusOr<std::string> ReplaceAll(std::string_view text, std::string_view content,
                                         size_t most) const;

 private:
  std::string string_;
  std::optional<SplitRegex> regex_;
};

}  // namespace pagefuse
