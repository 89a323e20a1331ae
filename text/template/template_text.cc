// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/text/template/template_text.h"

#include <utf8proc.h>

#include "pagefuse/text/tokenizer/unicode_classes.h"
#include "pagefuse/text/utf8.h"

namespace pagefuse::chat_template {
namespace {

bool IsSpace(char32_t point) {
  if (point < 0x80) return (point >= 0x9 && point <= 0xD) || (point >= 0x1C && point <= 0x20);
  return WhiteSpace().Contains(point);
}

void AppendUpper(char32_t point, std::string& out) {
  constexpr char32_t kSharpS = 0xDF;
  if (point == kSharpS) {
    out += "SS";
  } else {
    AppendCodePoint(&out, utf8proc_toupper(static_cast<utf8proc_int32_t>(point)));
  }
}

void AppendLower(char32_t point, std::string& out) {
  AppendCodePoint(&out, utf8proc_tolower(static_cast<utf8proc_int32_t>(point)));
}

bool IsCased(char32_t point) {
  const auto code = static_cast<utf8proc_int32_t>(point);
  return utf8proc_toupper(code) != code || utf8proc_tolower(code) != code;
}

template <typename Append>
std::string Mapped(std::string_view text, const Append& append) {
  std::string out;
  for (size_t at = 0; at < text.size();) append(NextCodePoint(text, at), out);
  return out;
}

}  // namespace

size_t LeadingSpace(std::string_view text) {
  size_t end = 0;
  for (size_t at = 0; at < text.size(); end = at) {
    if (!IsSpace(NextCodePoint(text, at))) break;
  }
  return end;
}

size_t TrimmedEnd(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    size_t first = end - 1;
    while (first > 0 && (text[first] & 0xC0) == 0x80) --first;
    size_t at = first;
    if (!IsSpace(NextCodePoint(text, at))) break;
    end = first;
  }
  return end;
}

std::vector<size_t> CharacterStarts(std::string_view text) {
  std::vector<size_t> starts;
  for (size_t at = 0; at < text.size(); ++at) {
    if ((text[at] & 0xC0) != 0x80) starts.push_back(at);
  }
  starts.push_back(text.size());
  return starts;
}

size_t CharacterCount(std::string_view text) {
  size_t count = 0;
  for (char c : text) count += (c & 0xC0) != 0x80;
  return count;
}

std::string Upper(std::string_view text) { return Mapped(text, AppendUpper); }
std::string Lower(std::string_view text) { return Mapped(text, AppendLower); }

std::string Capitalized(std::string_view text) {
  bool first = true;
  return Mapped(text, [&](char32_t point, std::string& out) {
    first ? AppendUpper(point, out) : AppendLower(point, out);
    first = false;
  });
}

std::string Titled(std::string_view text) {
  bool inside = false;
  return Mapped(text, [&](char32_t point, std::string& out) {
    inside ? AppendLower(point, out) : AppendUpper(point, out);
    inside = IsCased(point);
  });
}

}  // namespace pagefuse::chat_template
