// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/base/short_message.h"

#include <algorithm>

#include "pagefuse/base/str_cat.h"

namespace pagefuse {
namespace {

bool IsInsideCharacter(std::string_view text, size_t at) {
  return at < text.size() && (text[at] & 0xC0) == 0x80;
}

// `front` bytes of the text and `back` of its end, a few less where a character would be cut.
std::string Elided(std::string_view text, size_t front, size_t back) {
  size_t first = front, last = text.size() - back;
  // Bytes that are no UTF-8 end this too.
  for (int i = 0; i < 3 && IsInsideCharacter(text, first); ++i) --first;
  for (int i = 0; i < 3 && IsInsideCharacter(text, last); ++i) ++last;
  return StrCat(text.substr(0, first), "... (", last - first, " bytes left out) ...",
                text.substr(last));
}

// Walks over a text value by value.
class Values {
 public:
  explicit Values(std::string_view text)
      : text_(text), last_quote_(text.rfind('"')), last_bracket_(text.rfind(']')) {}

  // The end of the value at `at`.
  size_t End(size_t at) const {
    const char begin = text_[at];
    if (begin == '"' && at < last_quote_) return text_.find('"', at + 1) + 1;
    if (begin == '[' && last_bracket_ != std::string_view::npos && at < last_bracket_) {
      return text_.find(']', at) + 1;
    }
    return std::min(text_.find_first_of("\"[ \n", at + 1), text_.size());
  }

 private:
  std::string_view text_;
  size_t last_quote_, last_bracket_;
};

}  // namespace

std::string ShortMessage(std::string_view text) {
  if (text.size() <= kMostOfAValue) return std::string(text);
  const Values values(text);
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = values.End(at);
    const std::string_view value = text.substr(at, end - at);
    if (value.size() <= kMostOfAValue) {
      out += value;
    } else {
      out += Elided(value, kMostOfAValue / 2, kMostOfAValue / 4);
    }
    at = end;
  }
  if (out.size() <= kMostOfAMessage) return out;
  return Elided(out, kMostOfAMessage / 2, kMostOfAMessage / 4);
}

}  // namespace pagefuse
