// SPDX-License-Identifier: Apache-2.0
// Sets of characters as ranges, and the bytes of a range of characters in UTF-8.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace pagefuse {

inline constexpr char32_t kMaxCodePoint = 0x10FFFF;

// Both ends belong to it.
struct CharacterRange {
  char32_t low = 0;
  char32_t high = 0;
  bool operator==(const CharacterRange&) const = default;
};

class CharacterSet {
 public:
  CharacterSet() = default;
  explicit CharacterSet(std::vector<CharacterRange> ranges);

  void Add(char32_t low, char32_t high);
  void AddAll(const CharacterSet& other);
  // All characters that are not in it. Surrogates are no characters: they never are in a complement.
  CharacterSet Complement() const;
  // Ascending, with a gap between any two.
  const std::vector<CharacterRange>& ranges() const { return ranges_; }

 private:
  void Normalise();

  std::vector<CharacterRange> ranges_;
};

struct ByteRange {
  uint8_t low = 0;
  uint8_t high = 0;
};
// Calls `found` with sequences of one to four byte ranges. Together they are the characters of the
// range, each spelled once; surrogates are left out.
void ForEachUtf8Range(CharacterRange range,
                      const std::function<void(std::span<const ByteRange>)>& found);

}  // namespace pagefuse
