// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/text/utf8.h"

#include <cstdint>
#include <utility>

namespace pagefuse {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// A lead byte says how many bytes follow and in which range the next one lies; those behind it are
// 0x80 to 0xBF. Overlong forms, surrogates and points past U+10FFFF are excluded by these ranges.
struct Lead {
  int following;
  uint8_t least, most;
};

Lead LeadOf(uint8_t byte) {
  if (byte < 0x80) return {0, 0, 0};
  if (byte < 0xC2) return {-1, 0, 0};
  if (byte < 0xE0) return {1, 0x80, 0xBF};
  if (byte == 0xE0) return {2, 0xA0, 0xBF};
  if (byte == 0xED) return {2, 0x80, 0x9F};
  if (byte < 0xF0) return {2, 0x80, 0xBF};
  if (byte == 0xF0) return {3, 0x90, 0xBF};
  if (byte < 0xF4) return {3, 0x80, 0xBF};
  if (byte == 0xF4) return {3, 0x80, 0x8F};
  return {-1, 0, 0};
}

// Appends what is complete and returns how many bytes at the end are a cut character.
size_t AppendComplete(std::string_view bytes, std::string& text) {
  while (!bytes.empty()) {
    const Utf8Part part = FrontOfUtf8(bytes);
    if (part.kind == Utf8Part::kCut) return bytes.size();
    text.append(part.kind == Utf8Part::kCharacter ? bytes.substr(0, part.bytes) : kReplacement);
    bytes.remove_prefix(part.bytes);
  }
  return 0;
}

}  // namespace

Utf8Part FrontOfUtf8(std::string_view text) {
  const auto first = static_cast<uint8_t>(text[0]);
  const Lead lead = LeadOf(first);
  if (lead.following < 0) return {Utf8Part::kBroken, 1};
  if (lead.following == 0) return {Utf8Part::kCharacter, 1, first};
  char32_t point = first & (0x3F >> lead.following);
  uint8_t least = lead.least, most = lead.most;
  for (int i = 1; i <= lead.following; ++i) {
    if (static_cast<size_t>(i) == text.size()) return {Utf8Part::kCut, i};
    const auto byte = static_cast<uint8_t>(text[i]);
    if (byte < least || byte > most) return {Utf8Part::kBroken, i};
    point = point << 6 | (byte & 0x3F);
    least = 0x80;
    most = 0xBF;
  }
  return {Utf8Part::kCharacter, lead.following + 1, point};
}

std::optional<size_t> FirstBrokenByte(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const Utf8Part part = FrontOfUtf8(text.substr(at));
    if (part.kind != Utf8Part::kCharacter) return at;
    at += part.bytes;
  }
  return std::nullopt;
}

char32_t NextCodePoint(std::string_view text, size_t& at) {
  const Utf8Part part = FrontOfUtf8(text.substr(at));
  at += part.bytes;
  return part.point;
}

void AppendCodePoint(std::string* text, char32_t point) {
  const auto trail = [&](int shift) {
    text->push_back(static_cast<char>(0x80 | (point >> shift & 0x3F)));
  };
  if (point < 0x80) {
    text->push_back(static_cast<char>(point));
  } else if (point < 0x800) {
    text->push_back(static_cast<char>(0xC0 | point >> 6));
    trail(0);
  } else if (point < 0x10000) {
    text->push_back(static_cast<char>(0xE0 | point >> 12));
    trail(6);
    trail(0);
  } else {
    text->push_back(static_cast<char>(0xF0 | point >> 18));
    trail(12);
    trail(6);
    trail(0);
  }
}

std::string ReplaceBrokenUtf8(std::string_view bytes) {
  Utf8Stream stream;
  std::string text = stream.Add(bytes);
  return text += stream.Finish();
}

std::string Utf8Stream::Add(std::string_view bytes) {
  held_.append(bytes);
  std::string text;
  const size_t cut = AppendComplete(held_, text);
  held_.erase(0, held_.size() - cut);
  return text;
}

std::string Utf8Stream::Finish() {
  return std::exchange(held_, "").empty() ? std::string() : std::string(kReplacement);
}

}  // namespace pagefuse
