// Types and dims.
#include <limits>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/onnx_proto.h"
#include "pagefuse/ir/str_cat.h"
#include "pagefuse/ir/text_parser.h"

namespace pagefuse {

bool TextParser::NextIsType() const {
  const Token& token = lexer_.Peek();
  if (token.kind != TokenKind::kIdentifier) return false;
  if (DataTypeFromName(token.text) || IsTypeKeyword(token.text)) return true;
  // A value may be called "undefined"; only with dims is it a type.
  return token.text == "undefined" && lexer_.Peek(1).Is("[");
}

absl::StatusOr<onnx::TypeProto> TextParser::ParseWholeType() {
  onnx::TypeProto type;
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

absl::Status TextParser::ParseType(onnx::TypeProto& type) {
  if (lexer_.Peek().kind != TokenKind::kIdentifier) return Unexpected("a type");
  const std::string_view word = lexer_.Peek().text;
  if (!IsTypeKeyword(word)) return ParseTensorType(*type.mutable_tensor_type());
  lexer_.Next();
  PF_RETURN_IF_ERROR(EnterNesting(type_depth_));
  PF_RETURN_IF_ERROR(Expect("("));
  PF_RETURN_IF_ERROR(ParseTypeKeyword(word, type));
  PF_RETURN_IF_ERROR(Expect(")"));
  --type_depth_;
  return absl::OkStatus();
}

// What stands between the parentheses.
absl::Status TextParser::ParseTypeKeyword(std::string_view keyword, onnx::TypeProto& type) {
  if (keyword == "seq") return ParseType(*type.mutable_sequence_type()->mutable_elem_type());
  if (keyword == "optional") return ParseType(*type.mutable_optional_type()->mutable_elem_type());
  if (keyword == "sparse_tensor") return ParseTensorType(*type.mutable_sparse_tensor_type());
  if (keyword == "opaque") return ParseOpaqueType(type);
  if (keyword == "proto") return ParseProtoType(type);
  PF_ASSIGN_OR_RETURN(const DataType key, ParseElementType());
  type.mutable_map_type()->set_key_type(static_cast<int32_t>(key));
  PF_RETURN_IF_ERROR(Expect(","));
  return ParseType(*type.mutable_map_type()->mutable_value_type());
}

// A TypeProto that the syntax cannot say, as hexadecimal bytes.
absl::Status TextParser::ParseProtoType(onnx::TypeProto& type) {
  const Token place = lexer_.Peek();
  std::string bytes;
  PF_RETURN_IF_ERROR(ParseHexBytes(bytes));
  if (!ParseProto(bytes, kKeptMessageDepth, type).ok())
    return lexer_.Error(place, "expected a serialised TypeProto");
  return absl::OkStatus();
}

// `opaque()`, `opaque(name)`, `opaque(domain, name)`; both may be dotted.
absl::Status TextParser::ParseOpaqueType(onnx::TypeProto& type) {
  auto dotted = [this]() -> absl::StatusOr<std::string> {
    PF_ASSIGN_OR_RETURN(std::string name, ParseName("the name of an opaque type"));
    while (Matches(".")) {
      PF_ASSIGN_OR_RETURN(const std::string part, ParseName("the name of an opaque type"));
      StrAppend(&name, ".", part);
    }
    return name;
  };
  auto* opaque = type.mutable_opaque_type();
  if (lexer_.Peek().Is(")")) return absl::OkStatus();
  PF_ASSIGN_OR_RETURN(std::string name, dotted());
  if (Matches(",")) {
    opaque->set_domain(name);
    PF_ASSIGN_OR_RETURN(name, dotted());
  }
  opaque->set_name(name);
  return absl::OkStatus();
}

// `float` is a scalar, `float[]` has unknown rank, `float[2, N]` has rank 2.
template <typename TensorType>
absl::Status TextParser::ParseTensorType(TensorType& type) {
  PF_ASSIGN_OR_RETURN(const DataType dtype, ParseElementType());
  if (dtype != DataType::kUndefined) type.set_elem_type(static_cast<int32_t>(dtype));
  if (!Matches("[")) {
    type.mutable_shape();
    return absl::OkStatus();
  }
  if (Matches("]")) return absl::OkStatus();
  do {
    PF_RETURN_IF_ERROR(ParseDim(*type.mutable_shape()->add_dim()));
  } while (Matches(","));
  return Expect("]");
}

// `?`, a number, a name, a quoted expression as ONNX keeps it, or an expression without quotes.
absl::Status TextParser::ParseDim(onnx::TensorShapeProto::Dimension& dim) {
  if (Matches("?")) return absl::OkStatus();
  const Token& next = lexer_.Peek(1);
  if (NextIsName() && (next.Is(",") || next.Is("]"))) {
    PF_ASSIGN_OR_RETURN(*dim.mutable_dim_param(), ParseName("a dim"));
    return absl::OkStatus();
  }
  const Token place = lexer_.Peek();
  PF_ASSIGN_OR_RETURN(const Dim value, ParseDimSum());
  if (!value.known()) return lexer_.Error(place, "dim expression does not fit in 64 bits");
  if (const auto number = value.constant()) {
    dim.set_dim_value(*number);
  } else {
    dim.set_dim_param(value.ToString());
  }
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
