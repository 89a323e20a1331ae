// SPDX-License-Identifier: Apache-2.0
// Tokens of the ONNX text syntax, and errors that show the place in the text.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace pagefuse {

enum class TokenKind {
  kEnd,
  kIdentifier,   // [A-Za-z_][A-Za-z0-9_]*
  kString,       // "..." with \x standing for x
  kInteger,      // digits, without a sign
  kFloat,        // digits with a point or an exponent, without a sign
  kPunctuation,  // one character, or one of "=>" and "//"
  kError,        // no token; its error text says why
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string_view text;   // as written, the quotes of a string included
  std::string_view error;  // kError only

  bool Is(std::string_view punctuation) const {
    return kind == TokenKind::kPunctuation && text == punctuation;
  }
};

// What a string token stands for: the quotes and escapes removed.
std::string StringValue(const Token& token);

// True for a name that the syntax can hold without quotes wherever a name may stand: an identifier
// that is neither a type name nor a float literal ("inf", "nan").
bool IsPlainName(std::string_view name);
// True for an identifier.
bool IsIdentifier(std::string_view name);
// The names of types that are no tensors: "seq", "map", "optional", "sparse_tensor", "opaque",
// "proto".
bool IsTypeKeyword(std::string_view name);
// "inf", "infinity" or "nan", in any case.
bool IsFloatWord(std::string_view word);

// Splits text, which must outlive the lexer, into tokens. Skips white space and comments (from `#`
// to the end of the line).
class TextLexer {
 public:
  explicit TextLexer(std::string_view text) : text_(text) { Fill(); }

  // The next token, and the ones after it, without taking them. `ahead` is at most 2.
  const Token& Peek(int ahead = 0) const { return tokens_[ahead]; }
  // Takes the next token. Stays at the end.
  Token Next();

  // InvalidArgument: `line 3, column 5: <message>`, the line, and a mark under the column where
  // `token` starts.
  absl::Status Error(const Token& token, std::string_view message) const;

 private:
  static constexpr int kLookahead = 3;
  void Fill();
  Token Scan();
  Token ScanNumber(size_t begin);
  Token ScanString(size_t begin);
  void SkipSpace();
  Token Make(TokenKind kind, size_t begin) const {
    return {kind, text_.substr(begin, position_ - begin), {}};
  }

  std::string_view text_;
  size_t position_ = 0;
  Token tokens_[kLookahead];
};

}  // namespace pagefuse
