// SPDX-License-Identifier: Apache-2.0
// Reads JSON one byte at a time and says where a value ends, or the first byte that no value has.
#pragma once

#include <string>

namespace pagefuse {

class JsonScanner {
 public:
  enum class Read {
    kMore,
    kDone,  // the byte was the last of the value
    kBad,   // the byte does not belong to any value; the scanner is spent
  };
  // For one value: a string, a list or an object. Others have no last byte of their own, so they are bad here.
  JsonScanner() = default;
  // For the rest of an object of which a member has been read.
  static JsonScanner AfterMember();

  Read Add(char c);

 private:
  enum State {
    kValue,
    kValueOrEnd,  // behind "["
    kKeyOrEnd,    // behind "{"
    kKey,
    kColon,
    kNext,  // behind a value: a comma, or the end of what it is in
    kString,
    kEscape,
    kHex,
    kLiteral,
    kMinus,
    kZero,
    kInteger,
    kPoint,
    kFraction,
    kExponent,
    kExponentSign,
    kExponentDigits,
  };

  Read Go(State state) {
    state_ = state;
    return Read::kMore;
  }
  Read BeginValue(char c);
  Read BeginScalar(char c);
  Read BeginKey(char c);
  Read ReadText(char c);
  Read ReadEscape(char c);
  Read ReadNumber(char c);
  Read ReadDigits(char c);
  Read ReadExponent(char c);
  Read ReadNext(char c);
  Read Close(char open);
  Read EndValue();

  State state_ = kValue;
  bool is_key_ = false;  // of the string that is read
  int hex_ = 0;          // digits that an escape still needs
  const char* literal_ = nullptr;
  std::string open_;  // the brackets around, the innermost last
};

}  // namespace pagefuse
