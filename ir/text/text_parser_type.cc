// SPDX-License-Identifier: Apache-2.0
// Types and dims.
#include <limits>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/text/text_parser.h"

namespace pagefuse {

bool TextParser::NextIsType() const {
  const Token& token = lexer_.Peek();
  if (token.kind != TokenKind::kIdentifier) return false;
  if (DataTypeFromName(token.text) || IsTypeKeyword(token.text)) return true;
  // A value may be called "undefined"; only with dims is it a type.
  return token.text == "undefined" && lexer_.Peek(1).Is("[");
}

absl::StatusOr<TextType> TextParser::ParseWholeType() {
  TextType type;
  PF_RETURN_IF_ERROR(ParseType(type));
  if (lexer_.Peek().kind != TokenKind::kEnd) return Unexpected("the end of the text");
  return type;
}

absl::StatusOr<DataType> TextParser::ParseElementType() {
  const Token& token = lexer_.Peek();
  if (token.kind != TokenKind::kIdentifier) return Unexpected("an element type");
  const auto dtype =
      token.text == "undefined" ? DataType::kUndefined : DataTypeFromName(token.text);
  if (!dtype) return Unexpected("an element type");
  lexer_.Next();
  return *dtype;
}

absl::Status TextParser::ParseType(TextType& type) {
  if (lexer_.Peek().kind != TokenKind::kIdentifier) return Unexpected("a type");
  const std::string_view word = lexer_.Peek().text;
  if (!IsTypeKeyword(word)) return ParseTensorType(type);
  if (protos_ == nullptr) return Unexpected("the type of a tensor");
  lexer_.Next();
  PF_RETURN_IF_ERROR(EnterNesting(type_depth_));
  PF_RETURN_IF_ERROR(Expect("("));
  PF_RETURN_IF_ERROR(ParseTypeKeyword(word, type));
  PF_RETURN_IF_ERROR(Expect(")"));
  --type_depth_;
  return absl::OkStatus();
}

// What stands between the parentheses.
absl::Status TextParser::ParseTypeKeyword(std::string_view keyword, TextType& type) {
  using Kind = TextType::Kind;
  if (keyword == "seq") return ParseInnerType(Kind::kSequence, type);
  if (keyword == "optional") return ParseInnerType(Kind::kOptional, type);
  if (keyword == "sparse_tensor") {
    type.kind = Kind::kSparseTensor;
    return ParseTensorType(type);
  }
  if (keyword == "opaque") return ParseOpaqueType(type);
  if (keyword == "proto") return ParseProtoType(type);
  PF_ASSIGN_OR_RETURN(type.element, ParseElementType());
  PF_RETURN_IF_ERROR(Expect(","));
  return ParseInnerType(Kind::kMap, type);
}

absl::Status TextParser::ParseInnerType(TextType::Kind kind, TextType& type) {
  type.kind = kind;
  return ParseType(type.inner.emplace_back());
}

// A TypeProto that the syntax cannot say, as hexadecimal bytes.
absl::Status TextParser::ParseProtoType(TextType& type) {
  const Token place = lexer_.Peek();
  std::string bytes;
  PF_RETURN_IF_ERROR(ParseHexBytes(bytes));
  if (!protos_->ReadType(bytes, type)) {
    return lexer_.Error(place, "expected a serialised TypeProto");
  }
  return absl::OkStatus();
}

// `opaque()`, `opaque(name)`, `opaque(domain, name)`; both may be dotted.
absl::Status TextParser::ParseOpaqueType(TextType& type) {
  auto dotted = [this]() -> absl::StatusOr<std::string> {
    PF_ASSIGN_OR_RETURN(std::string name, ParseName("the name of an opaque type"));
    while (Matches(".")) {
      PF_ASSIGN_OR_RETURN(const std::string part, ParseName("the name of an opaque type"));
      StrAppend(&name, ".", part);
    }
    return name;
  };
  type.kind = TextType::Kind::kOpaque;
  if (lexer_.Peek().Is(")")) return absl::OkStatus();
  PF_ASSIGN_OR_RETURN(type.name, dotted());
  if (!Matches(",")) return absl::OkStatus();
  type.domain = std::move(type.name);
  PF_ASSIGN_OR_RETURN(type.name, dotted());
  return absl::OkStatus();
}

// `float` is a scalar, `float[]` has unknown rank, `float[2, N]` has rank 2.
absl::Status TextParser::ParseTensorType(TextType& type) {
  PF_ASSIGN_OR_RETURN(type.element, ParseElementType());
  if (!Matches("[")) {
    type.dims.emplace();
    return absl::OkStatus();
  }
  if (Matches("]")) return absl::OkStatus();
  type.dims.emplace();
  do {
    PF_RETURN_IF_ERROR(ParseDim(type.dims->emplace_back()));
  } while (Matches(","));
  return Expect("]");
}

// `?`, a number, a name, a quoted expression as ONNX keeps it, or an expression without quotes.
absl::Status TextParser::ParseDim(TextType::TextDim& dim) {
  if (Matches("?")) return absl::OkStatus();
  const Token& next = lexer_.Peek(1);
  if (NextIsName() && (next.Is(",") || next.Is("]"))) {
    PF_ASSIGN_OR_RETURN(dim.symbol, ParseName("a dim"));
    return absl::OkStatus();
  }
  const Token place = lexer_.Peek();
  PF_ASSIGN_OR_RETURN(const Dim value, ParseDimSum());
  if (!value.known()) return lexer_.Error(place, "dim expression does not fit in 64 bits");
  dim.number = value.constant();
  if (!dim.number) dim.symbol = value.ToString();
  return absl::OkStatus();
}

absl::StatusOr<Dim> TextParser::ParseDimSum() {
  PF_ASSIGN_OR_RETURN(Dim sum, ParseDimProduct());
  while (lexer_.Peek().Is("+") || lexer_.Peek().Is("-")) {
    const bool plus = lexer_.Next().Is("+");
    PF_ASSIGN_OR_RETURN(const Dim term, ParseDimProduct());
    sum = plus ? sum + term : sum - term;
  }
  return sum;
}

absl::StatusOr<Dim> TextParser::ParseDimProduct() {
  PF_ASSIGN_OR_RETURN(Dim product, ParseDimFactor());
  while (lexer_.Peek().Is("*") || lexer_.Peek().Is("//")) {
    const bool times = lexer_.Next().Is("*");
    const Token place = lexer_.Peek();
    PF_ASSIGN_OR_RETURN(const Dim factor, ParseDimFactor());
    if (!times && factor == Dim(0)) return lexer_.Error(place, "dim expression divides by zero");
    product = times ? product * factor : product.FloorDiv(factor);
  }
  return product;
}

absl::StatusOr<Dim> TextParser::ParseDimFactor() {
  if (NextIsName()) {
    PF_ASSIGN_OR_RETURN(const std::string name, ParseName("a dim"));
    return Dim::Parse(name);
  }
  if (lexer_.Peek().kind == TokenKind::kInteger) {
    PF_ASSIGN_OR_RETURN(const int64_t value, ParseInteger());
    return Dim(value);
  }
  PF_RETURN_IF_ERROR(EnterNesting(type_depth_));
  if (Matches("-")) {
    // The smallest number has no positive twin.
    if (lexer_.Peek().text == "9223372036854775808") {
      lexer_.Next();
      --type_depth_;
      return Dim(std::numeric_limits<int64_t>::min());
    }
    PF_ASSIGN_OR_RETURN(const Dim negated, ParseDimFactor());
    --type_depth_;
    return Dim(0) - negated;
  }
  if (!Matches("(")) return Unexpected("a dim: a number, a name, \"?\" or an expression of them");
  PF_ASSIGN_OR_RETURN(Dim inner, ParseDimSum());
  PF_RETURN_IF_ERROR(Expect(")"));
  --type_depth_;
  return inner;
}

}  // namespace pagefuse
