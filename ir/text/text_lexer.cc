// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ir/text/text_lexer.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"

#include "pagefuse/base/data_type.h"
#include "pagefuse/base/str_cat.h"

namespace pagefuse {
namespace {

bool IsIdentifierStart(char c) {
  return absl::ascii_isalpha(static_cast<unsigned char>(c)) || c == '_';
}
bool IsIdentifierPart(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_';
}
bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// The part of a line around a column that an error shows; whole up to 100 characters.
struct Excerpt {
  std::string line;
  size_t column;  // of the mark in `line`, from 0
};

Excerpt ExcerptAround(std::string_view line, size_t column) {
  constexpr size_t kBefore = 70;
  constexpr size_t kLength = 100;
  const size_t skip = column > kBefore && line.size() > kLength ? column - kBefore : 0;
  Excerpt result;
  if (skip > 0) result.line = "...";
  // Tabs and control characters would put the mark in a wrong column.
  const std::string_view shown = line.substr(skip, kLength);
  result.line += absl::CHexEscape(AbslView(shown.substr(0, column - skip)));
  result.column = result.line.size();
  if (column - skip < shown.size())
    result.line += absl::CHexEscape(AbslView(shown.substr(column - skip)));
  if (skip + kLength < line.size()) result.line += "...";
  return result;
}

}  // namespace

bool IsIdentifier(std::string_view name) {
  return !name.empty() && IsIdentifierStart(name[0]) && std::ranges::all_of(name, IsIdentifierPart);
}

bool IsTypeKeyword(std::string_view name) {
  return name == "seq" || name == "map" || name == "optional" || name == "sparse_tensor" ||
         name == "opaque" || name == "proto";
}

bool IsFloatWord(std::string_view word) {
  const absl::string_view view = AbslView(word);
  return absl::EqualsIgnoreCase(view, "inf") || absl::EqualsIgnoreCase(view, "infinity") ||
         absl::EqualsIgnoreCase(view, "nan");
}

bool IsPlainName(std::string_view name) {
  return IsIdentifier(name) && !IsTypeKeyword(name) && !IsFloatWord(name) && name != "undefined" &&
         !DataTypeFromName(name);
}

std::string StringValue(const Token& token) {
  std::string value;
  value.reserve(token.text.size());
  for (size_t i = 1; i + 1 < token.text.size(); ++i) {
    if (token.text[i] == '\\') ++i;
    value += token.text[i];
  }
  return value;
}

void TextLexer::Fill() {
  for (Token& token : tokens_) token = Scan();
}

Token TextLexer::Next() {
  const Token result = tokens_[0];
  std::move(tokens_ + 1, tokens_ + kLookahead, tokens_);
  tokens_[kLookahead - 1] = Scan();
  return result;
}

void TextLexer::SkipSpace() {
  while (position_ < text_.size()) {
    if (text_[position_] == '#') {
      position_ = std::min(text_.find('\n', position_), text_.size());
    } else if (absl::ascii_isspace(static_cast<unsigned char>(text_[position_]))) {
      ++position_;
    } else {
      return;
    }
  }
}

Token TextLexer::Scan() {
  SkipSpace();
  const size_t begin = position_;
  if (begin >= text_.size()) return Make(TokenKind::kEnd, text_.size());
  const char c = text_[begin];
  if (IsIdentifierStart(c)) {
    while (position_ < text_.size() && IsIdentifierPart(text_[position_])) ++position_;
    return Make(TokenKind::kIdentifier, begin);
  }
  if (c == '"') return ScanString(begin);
  const bool digit_follows = begin + 1 < text_.size() && IsDigit(text_[begin + 1]);
  if (IsDigit(c) || (c == '.' && digit_follows)) return ScanNumber(begin);
  ++position_;
  if (std::string_view("<>()[]{},:=.@?+-*/").find(c) != std::string_view::npos) {
    const std::string_view pair = text_.substr(begin, 2);
    if (pair == "=>" || pair == "//") ++position_;
    if (text_.substr(begin, 3) == "...") position_ += 2;
    return Make(TokenKind::kPunctuation, begin);
  }
  Token error = Make(TokenKind::kError, begin);
  error.error = "unexpected character";
  return error;
}

Token TextLexer::ScanNumber(size_t begin) {
  TokenKind kind = TokenKind::kInteger;
  auto skip_digits = [this] {
    const size_t from = position_;
    while (position_ < text_.size() && IsDigit(text_[position_])) ++position_;
    return position_ > from;
  };
  skip_digits();
  if (position_ < text_.size() && text_[position_] == '.') {
    kind = TokenKind::kFloat;
    ++position_;
    skip_digits();
  }
  bool good = true;
  if (position_ < text_.size() && (text_[position_] == 'e' || text_[position_] == 'E')) {
    kind = TokenKind::kFloat;
    ++position_;
    if (position_ < text_.size() && (text_[position_] == '+' || text_[position_] == '-'))
      ++position_;
    good = skip_digits();
  }
  while (position_ < text_.size() &&
         (IsIdentifierPart(text_[position_]) || text_[position_] == '.')) {
    good = false;
    ++position_;
  }
  Token token = Make(good ? kind : TokenKind::kError, begin);
  if (!good) token.error = "malformed number";
  return token;
}

Token TextLexer::ScanString(size_t begin) {
  for (++position_; position_ < text_.size(); ++position_) {
    if (text_[position_] == '"') {
      ++position_;
      return Make(TokenKind::kString, begin);
    }
    if (text_[position_] == '\\') ++position_;
  }
  position_ = text_.size();
  Token token = Make(TokenKind::kError, begin);
  token.error = "unterminated string";
  return token;
}

absl::Status TextLexer::Error(const Token& token, std::string_view message) const {
  const size_t offset = static_cast<size_t>(token.text.data() - text_.data());
  const std::string_view before = text_.substr(0, offset);
  const size_t line_number = 1 + std::ranges::count(before, '\n');
  const size_t last_break = before.rfind('\n');
  const size_t line_begin = last_break == std::string_view::npos ? 0 : last_break + 1;
  const size_t line_end = std::min(text_.find('\n', offset), text_.size());
  const size_t column = offset - line_begin;
  const Excerpt excerpt = ExcerptAround(text_.substr(line_begin, line_end - line_begin), column);
  return absl::InvalidArgumentError(StrCat("line ", line_number, ", column ", column + 1, ": ",
                                           message, "\n  ", excerpt.line, "\n  ",
                                           std::string(excerpt.column, ' '), "^"));
}

}  // namespace pagefuse
