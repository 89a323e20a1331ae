// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/rewrite/text_place.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"

#include "pagefuse/base/str_cat.h"

namespace pagefuse {

absl::Status ErrorAt(std::string_view path, std::string_view text, size_t offset,
                     std::string_view message) {
  offset = std::min(offset, text.size());
  const std::string_view before = text.substr(0, offset);
  const size_t start = before.rfind('\n') + 1;  // 0 where there is none
  const auto line = std::ranges::count(before, '\n') + 1;
  const size_t column = offset - start;
  return absl::InvalidArgumentError(StrCat(path, ":", line, ":", column + 1, ": ", message, "\n",
                                           text.substr(start, text.find('\n', start) - start), "\n",
                                           std::string(column, ' '), "^"));
}

PlaceError ErrorsIn(std::string path, std::string_view text) {
  return [path = std::move(path), text](std::string_view at, std::string_view message) {
    const bool inside = at.data() >= text.data() && at.data() <= text.data() + text.size();
    return ErrorAt(path, text, inside ? at.data() - text.data() : text.size(), message);
  };
}

size_t OffsetOf(const Token& token, std::string_view text) {
  return token.kind == TokenKind::kEnd ? text.size()
                                       : static_cast<size_t>(token.text.data() - text.data());
}

absl::Status UnexpectedToken(const Token& token, std::string_view expected, std::string_view text,
                             const PlaceError& error) {
  const std::string got =
      token.kind == TokenKind::kEnd ? "the end" : StrCat("\"", token.text, "\"");
  return error(text.substr(OffsetOf(token, text)), StrCat("expected ", expected, ", got ", got));
}

absl::Status ParserError(std::string_view message, std::string_view text, size_t shift,
                         const PlaceError& error) {
  int64_t line = 0, column = 0;
  const size_t comma = message.find(", column ");
  const size_t colon = message.find(": ");
  const bool placed =
      message.starts_with("line ") && comma != std::string_view::npos &&
      absl::SimpleAtoi(AbslView(message.substr(5, comma - 5)), &line) &&
      absl::SimpleAtoi(AbslView(message.substr(comma + 9, colon - comma - 9)), &column);
  if (!placed) return error(text, message);
  size_t at = 0;
  for (int64_t i = 1; i < line; ++i) at = std::min(text.find('\n', at), text.size() - 1) + 1;
  at += column - 1;
  if (line == 1) at -= std::min(at, shift);
  const std::string_view what = message.substr(colon + 2);
  return error(text.substr(std::min(at, text.size())), what.substr(0, what.find('\n')));
}

}  // namespace pagefuse
