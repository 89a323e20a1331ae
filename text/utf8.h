// SPDX-License-Identifier: Apache-2.0
// Decodes and encodes UTF-8, and detects bytes that are not UTF-8.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace pagefuse {

// What a text begins with.
struct Utf8Part {
  enum Kind {
    kCharacter,
    kBroken,  // bytes that no following byte can make a character: a maximal subpart, or one byte
    kCut,     // the beginning of a character, and the text ends
  };
  Kind kind = kCharacter;
  int bytes = 0;
  char32_t point = 0;  // of a character
};
// `text` is not empty.
Utf8Part FrontOfUtf8(std::string_view text);

// Where the first byte lies that is not part of a character; nothing if the text is UTF-8.
std::optional<size_t> FirstBrokenByte(std::string_view text);

// The character at `at`, which moves behind it. `text` is UTF-8.
char32_t NextCodePoint(std::string_view text, size_t& at);
void AppendCodePoint(std::string* text, char32_t point);

// U+FFFD for each broken and each cut part.
std::string ReplaceBrokenUtf8(std::string_view bytes);

// Bytes in, characters out: what may still become a character is held back, three bytes at most.
// The pieces joined are ReplaceBrokenUtf8 of all bytes.
class Utf8Stream {
 public:
  std::string Add(std::string_view bytes);
  // The end: what is held back comes out as U+FFFD.
  std::string Finish();

 private:
  std::string held_;
};

}  // namespace pagefuse
