// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/text/tokenizer/text_pattern.h"

#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/status_place.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/text/find_text.h"

namespace pagefuse {

absl::StatusOr<TextPattern> TextPattern::FromJson(const JsonFields& pattern) {
  if (pattern.Has("String")) {
    PF_ASSIGN_OR_RETURN(std::string text, pattern.Text("String"));
    return String(std::move(text));
  }
  PF_ASSIGN_OR_RETURN(const std::string regex, pattern.Text("Regex"));
  auto compiled = Regex(regex);
  if (compiled.ok()) return compiled;
  return AtPlace(pattern.place(), compiled.status());
}

absl::StatusOr<TextPattern> TextPattern::Regex(std::string_view regex) {
  TextPattern pattern;
  PF_ASSIGN_OR_RETURN(pattern.regex_, SplitRegex::Compile(regex));
  return pattern;
}

TextPattern TextPattern::String(std::string text) {
  TextPattern pattern;
  pattern.string_ = std::move(text);
  return pattern;
}

absl::Status TextPattern::ForEachMatch(std::string_view text,
                                       const std::function<void(size_t, size_t)>& found) const {
  if (regex_) return regex_->ForEachMatch(text, found);
  if (string_.empty()) return absl::OkStatus();
  for (size_t at = FindText(text, string_); at != std::string_view::npos;) {
    found(at, at + string_.size());
    at = FindText(text, string_, at + string_.size());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> TextPattern::ReplaceAll(std::string_view text, std::string_view content,
                                                    size_t most) const {
  std::string out;
  size_t copied = 0;
  const auto fits = [&](size_t more) { return more <= most && out.size() <= most - more; };
  bool whole = true;
  PF_RETURN_IF_ERROR(ForEachMatch(text, [&](size_t first, size_t end) {
    whole = whole && fits(first - copied + content.size());
    if (!whole) return;
    out.append(text, copied, first - copied).append(content);
    copied = end;
  }));
  if (!whole || !fits(text.size() - copied)) {
    return absl::ResourceExhaustedError(
        StrCat("a replacement makes more than ", most, " bytes of a text of ", text.size()));
  }
  return std::move(out.append(text, copied));
}

}  // namespace pagefuse
