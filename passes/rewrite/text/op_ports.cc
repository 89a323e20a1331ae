// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/rewrite/text/op_ports.h"

#include <algorithm>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/text/text_lexer.h"

namespace pagefuse {
namespace {

class HeadReader {
 public:
  HeadReader(std::string_view text, const PlaceError& error)
      : text_(text), lexer_(text), error_(error) {}

  absl::StatusOr<TextHead> Read() {
    head_.plain = text_;
    PF_RETURN_IF_ERROR(SkipAngles());
    if (lexer_.Peek().kind != TokenKind::kIdentifier) return Unexpected("the name of an op");
    lexer_.Next();
    PF_RETURN_IF_ERROR(SkipAngles());
    PF_RETURN_IF_ERROR(ReadPorts(head_.inputs));
    if (!Take("=>")) return Unexpected("\"=>\"");
    PF_RETURN_IF_ERROR(ReadPorts(head_.outputs));
    return std::move(head_);
  }

 private:
  bool Take(std::string_view punctuation) {
    if (!lexer_.Peek().Is(punctuation)) return false;
    lexer_.Next();
    return true;
  }

  absl::Status Unexpected(std::string_view expected) const {
    return UnexpectedToken(lexer_.Peek(), expected, text_, error_);
  }

  // Past `<...>`, which holds no other angles.
  absl::Status SkipAngles() {
    if (!Take("<")) return absl::OkStatus();
    while (!lexer_.Peek().Is(">")) {
      if (lexer_.Peek().kind == TokenKind::kEnd) return Unexpected("\">\"");
      lexer_.Next();
    }
    lexer_.Next();
    return absl::OkStatus();
  }

  absl::Status ReadPorts(std::vector<TextPort>& ports) {
    if (!Take("(")) return Unexpected("\"(\"");
    if (Take(")")) return absl::OkStatus();
    do {
      PF_RETURN_IF_ERROR(ReadPort(ports.emplace_back()));
    } while (Take(","));
    return Take(")") ? absl::OkStatus() : Unexpected("\",\" or \")\"");
  }

  absl::Status ReadPort(TextPort& port) {
    if (lexer_.Peek().kind != TokenKind::kIdentifier) return Unexpected("a type or a port");
    const Token first = lexer_.Next();
    if (lexer_.Peek().Is("[")) PF_RETURN_IF_ERROR(ReadShape(port));
    if (lexer_.Peek().kind == TokenKind::kIdentifier) {
      port.type = first.text;
      Blank(port.type);
      port.name = lexer_.Next().text;
    } else if (port.shape.empty()) {
      port.name = first.text;
    } else {
      return Unexpected("the name of a port");
    }
    if (!lexer_.Peek().Is("?") && lexer_.Peek().text != "?") return absl::OkStatus();
    Blank(lexer_.Next().text);
    port.is_optional = true;
    return absl::OkStatus();
  }

  absl::Status ReadShape(TextPort& port) {
    const size_t begin = OffsetOf(lexer_.Next(), text_);
    while (!lexer_.Peek().Is("]")) {
      if (lexer_.Peek().kind == TokenKind::kEnd) return Unexpected("\"]\"");
      lexer_.Next();
    }
    port.shape = text_.substr(begin, OffsetOf(lexer_.Next(), text_) + 1 - begin);
    Blank(port.shape);
    return absl::OkStatus();
  }

  void Blank(std::string_view part) {
    const auto begin = head_.plain.begin() + (part.data() - text_.data());
    std::replace_if(
        begin, begin + static_cast<std::ptrdiff_t>(part.size()), [](char c) { return c != '\n'; },
        ' ');
  }

  std::string_view text_;
  TextLexer lexer_;
  const PlaceError& error_;
  TextHead head_;
};

}  // namespace

absl::StatusOr<TextHead> ReadHead(std::string_view text, const PlaceError& error) {
  return HeadReader(text, error).Read();
}

}  // namespace pagefuse
