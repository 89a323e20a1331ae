// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/text/grammar/regex_class.h"

#include <optional>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/text/utf8.h"

namespace pagefuse {
namespace {

CharacterSet OneCharacter(char32_t character) { return CharacterSet({{character, character}}); }

CharacterSet RegexDigits() { return CharacterSet({{'0', '9'}}); }
CharacterSet RegexWords() { return CharacterSet({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}); }
// White space and line ends of ECMAScript.
CharacterSet RegexSpaces() {
  return CharacterSet({{'\t', '\r'},
                       {' ', ' '},
                       {0xA0, 0xA0},
                       {0x1680, 0x1680},
                       {0x2000, 0x200A},
                       {0x2028, 0x2029},
                       {0x202F, 0x202F},
                       {0x205F, 0x205F},
                       {0x3000, 0x3000},
                       {0xFEFF, 0xFEFF}});
}

std::optional<int> HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return std::nullopt;
}

absl::StatusOr<char32_t> ReadHex(RegexCursor& cursor, int digits) {
  char32_t value = 0;
  for (int i = 0; i < digits; ++i) {
    const auto digit = cursor.AtEnd() ? std::nullopt : HexDigit(cursor.text[cursor.at]);
    if (!digit) return cursor.Expected("a hexadecimal digit");
    value = value << 4 | static_cast<char32_t>(*digit);
    ++cursor.at;
  }
  return value;
}

// Behind "\u{".
absl::StatusOr<char32_t> ReadBracedHex(RegexCursor& cursor) {
  char32_t value = 0;
  while (!cursor.Take("}")) {
    PF_ASSIGN_OR_RETURN(const char32_t digit, ReadHex(cursor, 1));
    value = value << 4 | digit;
    if (value > kMaxCodePoint) return cursor.Expected("a character up to U+10FFFF");
  }
  if (value >= 0xD800 && value <= 0xDFFF) return cursor.Expected("a character, no surrogate");
  return value;
}

// Behind "\u". Two halves of a character are one.
absl::StatusOr<char32_t> ReadUnicodeEscape(RegexCursor& cursor) {
  if (cursor.Take("{")) return ReadBracedHex(cursor);
  PF_ASSIGN_OR_RETURN(const char32_t first, ReadHex(cursor, 4));
  if (first < 0xD800 || first > 0xDFFF) return first;
  if (first > 0xDBFF || !cursor.Take("\\u")) return cursor.Expected("a pair of surrogates");
  PF_ASSIGN_OR_RETURN(const char32_t second, ReadHex(cursor, 4));
  if (second < 0xDC00 || second > 0xDFFF) return cursor.Expected("a pair of surrogates");
  return 0x10000 + ((first - 0xD800) << 10 | (second - 0xDC00));
}

std::optional<CharacterSet> NamedClass(char c) {
  switch (c) {
    case 'd':
      return RegexDigits();
    case 'D':
      return RegexDigits().Complement();
    case 'w':
      return RegexWords();
    case 'W':
      return RegexWords().Complement();
    case 's':
      return RegexSpaces();
    case 'S':
      return RegexSpaces().Complement();
    default:
      return std::nullopt;
  }
}

std::optional<char32_t> ControlEscape(char c) {
  switch (c) {
    case 't':
      return '\t';
    case 'n':
      return '\n';
    case 'v':
      return '\v';
    case 'f':
      return '\f';
    case 'r':
      return '\r';
    default:
      return std::nullopt;
  }
}

bool IsAsciiLetter(char32_t c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool IsAsciiDigit(char32_t c) { return c >= '0' && c <= '9'; }

// One character or a named class, in brackets.
absl::StatusOr<CharacterSet> ReadClassAtom(RegexCursor& cursor) {
  if (cursor.AtEnd()) return cursor.Expected("\"]\"");
  if (cursor.Take("\\")) return ReadRegexEscape(cursor, /*in_class=*/true);
  return OneCharacter(cursor.Next());
}

std::optional<char32_t> SingleCharacter(const CharacterSet& set) {
  if (set.ranges().size() != 1) return std::nullopt;
  const CharacterRange range = set.ranges()[0];
  return range.low == range.high ? std::optional(range.low) : std::nullopt;
}

}  // namespace

char32_t RegexCursor::Next() { return NextCodePoint(text, at); }

bool RegexCursor::Take(std::string_view expected) {
  if (text.substr(at, expected.size()) != expected) return false;
  at += expected.size();
  return true;
}

absl::Status RegexCursor::Expected(std::string_view what) const {
  return absl::InvalidArgumentError(
      StrCat("at byte ", at, " of the pattern: expected ", what, ", got ",
             AtEnd() ? std::string("its end") : StrCat("\"", text.substr(at, 12), "\"")));
}

CharacterSet RegexAnyButLineEnds() {
  return CharacterSet({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}).Complement();
}

absl::StatusOr<CharacterSet> ReadRegexEscape(RegexCursor& cursor, bool in_class) {
  if (cursor.AtEnd()) return cursor.Expected("a character behind the backslash");
  const size_t begin = cursor.at;
  const auto fail = [&](std::string_view expected) {
    cursor.at = begin;
    return cursor.Expected(expected);
  };
  const char32_t c = cursor.Next();
  const char ascii = c < 0x80 ? static_cast<char>(c) : '\0';
  if (auto named = NamedClass(ascii)) return *std::move(named);
  if (const auto control = ControlEscape(ascii)) return OneCharacter(*control);
  if (ascii == 'b' && in_class) return OneCharacter('\b');
  if (ascii == 'x' || ascii == 'u') {
    PF_ASSIGN_OR_RETURN(const char32_t character,
                        ascii == 'x' ? ReadHex(cursor, 2) : ReadUnicodeEscape(cursor));
    return OneCharacter(character);
  }
  if (ascii == 'c') {
    const char32_t letter = cursor.AtEnd() ? 0 : cursor.Next();
    if (!IsAsciiLetter(letter)) return fail("a letter behind \"\\c\"");
    return OneCharacter(letter % 32);
  }
  if (c == '0' && (cursor.AtEnd() || !IsAsciiDigit(cursor.text[cursor.at]))) return OneCharacter(0);
  if (IsAsciiDigit(c) || ascii == 'k') return fail("no reference back, which is not regular");
  if (ascii == 'b' || ascii == 'B') return fail("no assertion but \"^\" and \"$\"");
  if (ascii == 'p' || ascii == 'P') return fail("a character, not a Unicode property");
  if (IsAsciiLetter(c)) return fail("a known escape");
  return OneCharacter(c);
}

absl::StatusOr<CharacterSet> ReadRegexClass(RegexCursor& cursor) {
  const bool negated = cursor.Take("^");
  std::vector<CharacterRange> ranges;
  const auto add = [&](const CharacterSet& set) {
    ranges.insert(ranges.end(), set.ranges().begin(), set.ranges().end());
  };
  while (!cursor.Take("]")) {
    PF_ASSIGN_OR_RETURN(const CharacterSet first, ReadClassAtom(cursor));
    const bool to =
        cursor.text.substr(cursor.at, 1) == "-" && cursor.text.substr(cursor.at, 2) != "-]";
    if (!to) {
      add(first);
      continue;
    }
    ++cursor.at;
    PF_ASSIGN_OR_RETURN(const CharacterSet last, ReadClassAtom(cursor));
    const auto low = SingleCharacter(first), high = SingleCharacter(last);
    if (!low || !high || *low > *high) return cursor.Expected("a range of ascending characters");
    ranges.push_back({*low, *high});
  }
  CharacterSet set(std::move(ranges));
  return negated ? set.Complement() : set;
}

}  // namespace pagefuse
