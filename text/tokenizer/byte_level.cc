// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/text/tokenizer/byte_level.h"

#include <array>
#include <cstdint>

#include "pagefuse/text/utf8.h"

namespace pagefuse {
namespace {

// Printable bytes of Latin-1 stand for themselves; the 68 others follow from U+0100 on in order.
constexpr bool IsPrintable(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
}

constexpr char32_t kOthers = 0x100, kEnd = 0x144;

constexpr std::array<char32_t, 256> kCharacters = [] {
  std::array<char32_t, 256> characters{};
  char32_t next = kOthers;
  for (int byte = 0; byte < 256; ++byte) characters[byte] = IsPrintable(byte) ? byte : next++;
  return characters;
}();

constexpr std::array<int, kEnd> kBytes = [] {
  std::array<int, kEnd> bytes{};
  for (int& byte : bytes) byte = -1;
  for (int byte = 0; byte < 256; ++byte) bytes[kCharacters[byte]] = byte;
  return bytes;
}();

}  // namespace

std::string BytesAsCharacters(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size() * 2);
  for (char byte : bytes) AppendCodePoint(&text, kCharacters[static_cast<uint8_t>(byte)]);
  return text;
}

std::optional<std::string> CharactersAsBytes(std::string_view characters) {
  std::string bytes;
  for (size_t at = 0; at < characters.size();) {
    const char32_t point = NextCodePoint(characters, at);
    if (point >= kEnd || kBytes[point] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kBytes[point]));
  }
  return bytes;
}

}  // namespace pagefuse
