// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/text/template/number_layout.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/text/template/template_text.h"
#include "pagefuse/text/utf8.h"

namespace pagefuse::chat_template {
namespace {

constexpr int64_t kMaxPrecision = 1000;

bool IsOneOf(char c, std::string_view all) { return all.find(c) != std::string_view::npos; }

absl::Status WrongKind(const FieldLayout& layout, std::string_view expected, const Value& value) {
  return Wrong(StrCat("a field of type \"", std::string(1, layout.type), "\": expected ", expected,
                      ", got ", value.KindName()));
}

// A number in the parts between which '=' fills.
struct NumberText {
  std::string sign, digits;
};

std::string SignOf(bool negative, const FieldLayout& layout) {
  if (negative) return "-";
  return layout.sign == '-' ? "" : std::string(1, layout.sign);
}

void Group(std::string& digits, char separator) {
  const size_t whole = std::min(digits.find_first_not_of("0123456789"), digits.size());
  for (size_t at = whole; at > 3;) digits.insert(at -= 3, 1, separator);
}

std::string DigitsOf(uint64_t number, unsigned base, bool large) {
  const char* const letters = large ? "0123456789ABCDEF" : "0123456789abcdef";
  std::string digits;
  do {
    digits.insert(digits.begin(), letters[number % base]);
  } while (number /= base);
  return digits;
}

NumberText IntegerText(int64_t number, const FieldLayout& layout) {
  const auto size =
      number < 0 ? uint64_t{0} - static_cast<uint64_t>(number) : static_cast<uint64_t>(number);
  const bool hexadecimal = layout.type == 'x' || layout.type == 'X';
  const unsigned base = hexadecimal ? 16 : layout.type == 'o' ? 8 : layout.type == 'b' ? 2 : 10;
  NumberText text = {SignOf(number < 0, layout), DigitsOf(size, base, layout.type == 'X')};
  const auto least = static_cast<size_t>(layout.precision.value_or(0));
  if (text.digits.size() < least) text.digits.insert(0, least - text.digits.size(), '0');
  if (layout.alternate && base != 10) text.sign += StrCat("0", std::string(1, layout.type));
  if (layout.grouping != '\0') Group(text.digits, layout.grouping);
  return text;
}

// As C prints it: the same digits as Python's.
NumberText FloatText(double number, const FieldLayout& layout) {
  const bool percent = layout.type == '%';
  const std::string format =
      StrCat(layout.alternate ? "%#.*" : "%.*", std::string(1, percent ? 'f' : layout.type));
  const double size = std::abs(percent ? number * 100 : number);
  const int precision = static_cast<int>(layout.precision.value_or(6));
  const int bytes = std::snprintf(nullptr, 0, format.c_str(), precision, size);
  std::string digits(static_cast<size_t>(bytes) + 1, '\0');
  std::snprintf(digits.data(), digits.size(), format.c_str(), precision, size);
  digits.pop_back();
  if (layout.grouping != '\0') Group(digits, layout.grouping);
  if (percent) digits += '%';
  return {SignOf(std::signbit(number), layout), std::move(digits)};
}

absl::StatusOr<MarkedText> Padded(Work& work, const MarkedText& sign, const MarkedText& text,
                                  const FieldLayout& layout, char usual) {
  const auto written =
      static_cast<int64_t>(CharacterCount(sign.bytes()) + CharacterCount(text.bytes()));
  const int64_t missing = std::max<int64_t>(layout.width - written, 0);
  if (missing > static_cast<int64_t>(Work::kMaxBytes)) return Work::TooLong();
  PF_RETURN_IF_ERROR(work.Charge(text.size() + static_cast<size_t>(missing)));
  const char align = layout.align == '\0' ? usual : layout.align;
  const int64_t left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  const auto fill = [&](int64_t count) {
    std::string filled;
    for (int64_t i = 0; i < count; ++i) filled += layout.fill;
    return MarkedText(std::move(filled));
  };
  MarkedText out;
  if (align == '=') out.Append(sign);
  out.Append(fill(left));
  if (align != '=') out.Append(sign);
  out.Append(text);
  out.Append(fill(missing - left));
  return out;
}

absl::StatusOr<MarkedText> PaddedNumber(Work& work, NumberText number, const FieldLayout& layout) {
  return Padded(work, MarkedText(std::move(number.sign)), MarkedText(std::move(number.digits)),
                layout, '>');
}

absl::StatusOr<MarkedText> Character(const Value& value, const FieldLayout& layout) {
  if (value.text() && CharacterCount(value.text()->bytes()) == 1) return *value.text();
  const auto point = value.integer();
  if (!point || *point < 0 || *point > 0x10FFFF || (*point >= 0xD800 && *point < 0xE000)) {
    return WrongKind(layout, "a character", value);
  }
  std::string text;
  AppendCodePoint(&text, static_cast<char32_t>(*point));
  return MarkedText(std::move(text));
}

absl::StatusOr<MarkedText> TextOf(Work& work, const Value& value, const FieldLayout& layout) {
  if (layout.type == 'c') return Character(value, layout);
  PF_ASSIGN_OR_RETURN(MarkedText text, layout.type == 'r' ? value.Repr(work) : value.Print(work));
  if (!layout.precision) return text;
  const std::vector<size_t> starts = CharacterStarts(text.bytes());
  const auto most = static_cast<size_t>(*layout.precision);
  return most + 1 < starts.size() ? text.Substr(0, starts[most]) : text;
}

}  // namespace

absl::StatusOr<MarkedText> LaidOut(Work& work, const Value& value, const FieldLayout& layout) {
  if (IsOneOf(layout.type, "dxXobeEfFgG%")) {
    if (!value.is_number()) return WrongKind(layout, "a number", value);
    if (layout.precision.value_or(0) > kMaxPrecision) {
      return Wrong(
          StrCat("expected a precision of ", kMaxPrecision, " at most, got ", *layout.precision));
    }
    if (IsOneOf(layout.type, "eEfFgG%")) {
      return PaddedNumber(work, FloatText(*value.number(), layout), layout);
    }
    if (value.integer()) return PaddedNumber(work, IntegerText(*value.integer(), layout), layout);
    if (layout.type != 'd' || !(std::abs(*value.number()) < 9e18)) {
      return WrongKind(layout, "an integer", value);
    }
    return PaddedNumber(work, IntegerText(static_cast<int64_t>(*value.number()), layout), layout);
  }
  PF_ASSIGN_OR_RETURN(const MarkedText text, TextOf(work, value, layout));
  return Padded(work, MarkedText(), text, layout, '<');
}

}  // namespace pagefuse::chat_template
