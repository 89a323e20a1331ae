// SPDX-License-Identifier: Apache-2.0
// Tensor literals and floating-point numbers.
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/tensor/absent_tensor.h"
#include "pagefuse/ir/text/text_parser.h"

namespace pagefuse {
namespace {

// The type of the numbers that an element is written as.
DataType LiteralType(DataType type) {
  if (type == DataType::kComplex64) return DataType::kFloat;
  return type == DataType::kComplex128 ? DataType::kDouble : type;
}

// Elements of these are written as unsigned integers that hold their bits.
bool IsWrittenAsBits(DataType type) {
  return IsFloatingPoint(type) && type != DataType::kFloat && type != DataType::kDouble;
}

uint64_t LowBits(int count) {
  if (count <= 0) return 0;
  return count >= 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1;
}

bool ReadDecimal(std::string_view digits, float* value) {
  return absl::SimpleAtof(AbslView(digits), value);
}
bool ReadDecimal(std::string_view digits, double* value) {
  return absl::SimpleAtod(AbslView(digits), value);
}

void AppendBits(uint64_t bits, int width, int64_t index, std::vector<uint8_t>& bytes) {
  if (width < 8) {
    const int64_t shift = index * width % 8;
    if (shift == 0) bytes.push_back(0);
    bytes.back() |= static_cast<uint8_t>(bits << shift);
    return;
  }
  for (int shift = 0; shift < width; shift += 8)
    bytes.push_back(static_cast<uint8_t>(bits >> shift));
}

}  // namespace

// `{1, 2, 3}` as a tensor of a type with numeric dims; `...` as one without data.
absl::StatusOr<Tensor> TextParser::ParseTensorData(const TextType& type, const Token& place) {
  const DataType dtype = type.element;
  if (!type.is_tensor() || dtype == DataType::kUndefined) {
    return lexer_.Error(place, "expected a tensor type before data");
  }
  if (!type.dims) return lexer_.Error(place, "expected a tensor type with dims before data");
  std::vector<int64_t> dims;
  for (const TextType::TextDim& dim : *type.dims) {
    if (dim.number.value_or(-1) < 0) {
      return lexer_.Error(place, "expected a tensor type with numeric dims before data");
    }
    dims.push_back(*dim.number);
  }
  if (!ByteSize(dtype, dims).ok() || !ElementCount(dims)) {
    return lexer_.Error(place, StrCat("a tensor of dims ", DimsToString(dims), " is too large"));
  }
  if (lexer_.Peek().Is("["))
    return lexer_.Error(lexer_.Peek(), "external data cannot be read from text");
  if (lexer_.Peek().Is("...")) {
    absl::StatusOr<Tensor> absent = AbsentTensor(dtype, dims);
    if (!absent.ok()) return lexer_.Error(lexer_.Peek(), StdView(absent.status().message()));
    lexer_.Next();
    return absent;
  }
  if (dtype == DataType::kString) return ParseStrings(dims, *ElementCount(dims));
  return ParseElements(dtype, dims);
}

// `{...}` with exactly `count` elements. Grows with the text, whatever the count.
absl::Status TextParser::ParseBraced(int64_t count,
                                     const std::function<absl::Status()>& parse_element) {
  PF_RETURN_IF_ERROR(Expect("{"));
  int64_t index = 0;
  if (!lexer_.Peek().Is("}")) {
    do {
      if (index == count)
        return lexer_.Error(lexer_.Peek(), StrCat("expected ", count, " elements, got more"));
      PF_RETURN_IF_ERROR(parse_element());
      ++index;
    } while (Matches(","));
  }
  if (lexer_.Peek().Is("}") && index != count) {
    return lexer_.Error(lexer_.Peek(), StrCat("expected ", count, " elements, got ", index));
  }
  return Expect("}");
}

absl::StatusOr<Tensor> TextParser::ParseStrings(const std::vector<int64_t>& dims, int64_t count) {
  std::vector<std::string> values;
  PF_RETURN_IF_ERROR(ParseBraced(count, [&]() -> absl::Status {
    PF_ASSIGN_OR_RETURN(std::string value, ParseString());
    values.push_back(std::move(value));
    return absl::OkStatus();
  }));
  return Tensor::Strings(dims, std::move(values));
}

absl::StatusOr<Tensor> TextParser::ParseElements(DataType type, const std::vector<int64_t>& dims) {
  const DataType literal = LiteralType(type);
  const auto count = CheckedMul(*ElementCount(dims), literal == type ? 1 : 2);
  std::vector<uint8_t> bytes;
  int64_t index = 0;
  PF_RETURN_IF_ERROR(ParseBraced(*count, [&]() -> absl::Status {
    PF_ASSIGN_OR_RETURN(const uint64_t bits, ParseElementBits(literal));
    AppendBits(bits, BitWidth(literal), index++, bytes);
    return absl::OkStatus();
  }));
  PF_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Allocate(type, dims));
  PF_CHECK(tensor.byte_size() == static_cast<int64_t>(bytes.size()));
  if (!bytes.empty()) std::memcpy(tensor.mutable_data(), bytes.data(), bytes.size());
  return tensor;
}

absl::StatusOr<uint64_t> TextParser::ParseElementBits(DataType type) {
  if (type == DataType::kFloat) {
    PF_ASSIGN_OR_RETURN(const float value, ParseFloat<float>());
    return std::bit_cast<uint32_t>(value);
  }
  if (type == DataType::kDouble) {
    PF_ASSIGN_OR_RETURN(const double value, ParseFloat<double>());
    return std::bit_cast<uint64_t>(value);
  }
  return ParseIntegerBits(type);
}

absl::StatusOr<uint64_t> TextParser::ParseIntegerBits(DataType type) {
  const bool is_bits = IsWrittenAsBits(type);
  const int width = type == DataType::kBool ? 1 : BitWidth(type);
  const Token place = lexer_.Peek();
  const bool negative = Matches("-");
  if (lexer_.Peek().kind != TokenKind::kInteger) {
    return Unexpected(is_bits ? StrCat("an integer that holds the bits of a ", DataTypeName(type))
                              : StrCat("an integer of type ", DataTypeName(type)));
  }
  const std::string_view digits = lexer_.Next().text;
  const bool is_signed = IsInteger(type) && IsSigned(type);
  const uint64_t max = LowBits(is_signed ? width - 1 : width);
  const uint64_t min_magnitude = is_signed ? max + 1 : 0;
  uint64_t magnitude = 0;
  if (!absl::SimpleAtoi(AbslView(digits), &magnitude) ||
      magnitude > (negative ? min_magnitude : max)) {
    return lexer_.Error(
        place, StrCat("expected ", is_bits ? "the bits of a " : "an element of type ",
                      DataTypeName(type), " in [", min_magnitude > 0 ? "-" : "", min_magnitude,
                      ", ", max, "], got ", negative ? "-" : "", digits));
  }
  return (negative ? ~magnitude + 1 : magnitude) & LowBits(width);
}

// --- floats ---

// `inf`, `infinity`, `nan`, and `nan(N)`: the not-a-number whose bits are the integer N.
template <typename Float>
absl::StatusOr<Float> TextParser::ParseFloatWord(bool negative) {
  using Bits = std::conditional_t<sizeof(Float) == 4, uint32_t, uint64_t>;
  const Token word = lexer_.Next();
  if (!absl::EqualsIgnoreCase(AbslView(word.text), "nan")) {
    const Float inf = std::numeric_limits<Float>::infinity();
    return negative ? -inf : inf;
  }
  const Float nan =
      std::copysign(std::numeric_limits<Float>::quiet_NaN(), negative ? Float{-1} : Float{1});
  if (!Matches("(")) return nan;
  const Token place = lexer_.Peek();
  Bits bits = 0;
  if (place.kind != TokenKind::kInteger) return Unexpected("the bits of a nan");
  if (!absl::SimpleAtoi(AbslView(lexer_.Next().text), &bits) ||
      !std::isnan(std::bit_cast<Float>(bits))) {
    return lexer_.Error(
        place, StrCat("expected the bits of a nan of ", sizeof(Float), " bytes, got ", place.text));
  }
  PF_RETURN_IF_ERROR(Expect(")"));
  return std::bit_cast<Float>(bits);
}

template <typename Float>
absl::StatusOr<Float> TextParser::ParseFloat() {
  const Token first = lexer_.Peek();
  const bool negative = Matches("-");
  const Token& token = lexer_.Peek();
  if (token.kind == TokenKind::kIdentifier && IsFloatWord(token.text))
    return ParseFloatWord<Float>(negative);
  if (token.kind != TokenKind::kInteger && token.kind != TokenKind::kFloat)
    return Unexpected("a number");
  const std::string_view digits = lexer_.Next().text;
  Float value = 0;
  if (!ReadDecimal(digits, &value) || !std::isfinite(value)) {
    return lexer_.Error(
        first, StrCat("expected a number that fits in a ", sizeof(Float) == 4 ? "float" : "double",
                      ", got ", negative ? "-" : "", digits));
  }
  return negative ? -value : value;
}

template absl::StatusOr<float> TextParser::ParseFloat<float>();
template absl::StatusOr<double> TextParser::ParseFloat<double>();

}  // namespace pagefuse
