// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/text/answer/json_scanner.h"

#include "pagefuse/base/json_depth.h"
#include "pagefuse/text/answer/json_text.h"

namespace pagefuse {
namespace {

bool IsJsonDigit(char c) { return c >= '0' && c <= '9'; }
bool IsHexDigit(char c) {
  return IsJsonDigit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

}  // namespace

JsonScanner JsonScanner::AfterMember() {
  JsonScanner scanner;
  scanner.open_.push_back('{');
  scanner.state_ = kNext;
  return scanner;
}

JsonScanner::Read JsonScanner::Add(char c) {
  switch (state_) {
    case kString:
      return ReadText(c);
    case kEscape:
      return ReadEscape(c);
    case kHex:
      if (!IsHexDigit(c)) return Read::kBad;
      return Go(--hex_ == 0 ? kString : kHex);
    case kLiteral:
      if (c != *literal_) return Read::kBad;
      return *++literal_ == '\0' ? EndValue() : Read::kMore;
    case kMinus:
    case kZero:
    case kInteger:
    case kPoint:
    case kFraction:
    case kExponent:
    case kExponentSign:
    case kExponentDigits:
      return ReadNumber(c);
    default:
      break;
  }
  if (IsJsonSpace(c)) return Read::kMore;
  if (state_ == kValue || (state_ == kValueOrEnd && c != ']')) return BeginValue(c);
  if (state_ == kKey || (state_ == kKeyOrEnd && c != '}')) return BeginKey(c);
  if (state_ == kColon) return c == ':' ? Go(kValue) : Read::kBad;
  return ReadNext(c);
}

JsonScanner::Read JsonScanner::BeginValue(char c) {
  if (c == '"') {
    is_key_ = false;
    return Go(kString);
  }
  if (c == '{' || c == '[') {
    if (open_.size() >= kMaxJsonDepth) return Read::kBad;
    open_ += c;
    return Go(c == '{' ? kKeyOrEnd : kValueOrEnd);
  }
  return open_.empty() ? Read::kBad : BeginScalar(c);
}

JsonScanner::Read JsonScanner::BeginScalar(char c) {
  if (c == '-') return Go(kMinus);
  if (c == '0') return Go(kZero);
  if (IsJsonDigit(c)) return Go(kInteger);
  for (const char* literal : {"true", "false", "null"}) {
    if (c != literal[0]) continue;
    literal_ = literal + 1;
    return Go(kLiteral);
  }
  return Read::kBad;
}

JsonScanner::Read JsonScanner::BeginKey(char c) {
  if (c != '"') return Read::kBad;
  is_key_ = true;
  return Go(kString);
}

JsonScanner::Read JsonScanner::ReadText(char c) {
  if (c == '\\') return Go(kEscape);
  if (static_cast<unsigned char>(c) < 0x20) return Read::kBad;
  if (c != '"') return Read::kMore;
  return is_key_ ? Go(kColon) : EndValue();
}

JsonScanner::Read JsonScanner::ReadEscape(char c) {
  if (c == 'u') {
    hex_ = 4;
    return Go(kHex);
  }
  const bool known = std::string_view("\"\\/bfnrt").find(c) != std::string_view::npos;
  return known ? Go(kString) : Read::kBad;
}

JsonScanner::Read JsonScanner::ReadNumber(char c) {
  if (IsJsonDigit(c)) return ReadDigits(c);
  if (c == '.') return state_ == kZero || state_ == kInteger ? Go(kPoint) : Read::kBad;
  if (c == 'e' || c == 'E' || c == '+' || c == '-') return ReadExponent(c);
  const bool ends =
      state_ == kZero || state_ == kInteger || state_ == kFraction || state_ == kExponentDigits;
  if (!ends) return Read::kBad;
  state_ = kNext;
  return IsJsonSpace(c) ? Read::kMore : ReadNext(c);
}

JsonScanner::Read JsonScanner::ReadDigits(char c) {
  switch (state_) {
    case kMinus:
      return Go(c == '0' ? kZero : kInteger);
    case kZero:
      return Read::kBad;
    case kPoint:
      return Go(kFraction);
    case kExponent:
    case kExponentSign:
      return Go(kExponentDigits);
    default:
      return Read::kMore;
  }
}

JsonScanner::Read JsonScanner::ReadExponent(char c) {
  if (c == '+' || c == '-') return state_ == kExponent ? Go(kExponentSign) : Read::kBad;
  const bool begins = state_ == kZero || state_ == kInteger || state_ == kFraction;
  return begins ? Go(kExponent) : Read::kBad;
}

JsonScanner::Read JsonScanner::ReadNext(char c) {
  if (c == '}') return Close('{');
  if (c == ']') return Close('[');
  if (c != ',' || state_ != kNext) return Read::kBad;
  return Go(open_.back() == '{' ? kKey : kValue);
}

JsonScanner::Read JsonScanner::Close(char open) {
  if (open_.empty() || open_.back() != open) return Read::kBad;
  open_.pop_back();
  return EndValue();
}

JsonScanner::Read JsonScanner::EndValue() {
  state_ = kNext;
  return open_.empty() ? Read::kDone : Read::kMore;
}

}  // namespace pagefuse
