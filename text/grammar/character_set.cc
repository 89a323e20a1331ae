// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/text/grammar/character_set.h"

#include <algorithm>
#include <string>
#include <utility>

#include "pagefuse/text/utf8.h"

namespace pagefuse {
namespace {

constexpr CharacterRange kSurrogates = {0xD800, 0xDFFF};

using FoundUtf8 = std::function<void(std::span<const ByteRange>)>;

// The parts of a range on both sides of the surrogates, or of a bound between two lengths.
void ForEachLength(CharacterRange range, const std::function<void(CharacterRange)>& found) {
  constexpr CharacterRange kLengths[] = {
      {0, 0x7F}, {0x80, 0x7FF}, {0x800, 0xD7FF}, {0xE000, 0xFFFF}, {0x10000, kMaxCodePoint}};
  for (const CharacterRange& length : kLengths) {
    const CharacterRange part = {std::max(range.low, length.low),
                                 std::min(range.high, length.high)};
    if (part.low <= part.high) found(part);
  }
}

// A range of characters of one length. Where the ends differ in a byte, the bytes behind it must
// cover their whole range: what does not is cut off at both ends.
void SplitUtf8(CharacterRange range, const FoundUtf8& found) {
  for (int bits : {6, 12, 18}) {
    const char32_t rest = (char32_t{1} << bits) - 1;
    if ((range.low & ~rest) == (range.high & ~rest)) continue;
    if ((range.low & rest) != 0) {
      SplitUtf8({range.low, range.low | rest}, found);
      SplitUtf8({(range.low | rest) + 1, range.high}, found);
      return;
    }
    if ((range.high & rest) != rest) {
      SplitUtf8({range.low, (range.high & ~rest) - 1}, found);
      SplitUtf8({range.high & ~rest, range.high}, found);
      return;
    }
  }
  std::string low, high;
  AppendCodePoint(&low, range.low);
  AppendCodePoint(&high, range.high);
  ByteRange bytes[4];
  for (size_t i = 0; i < low.size(); ++i) {
    bytes[i] = {static_cast<uint8_t>(low[i]), static_cast<uint8_t>(high[i])};
  }
  found(std::span(bytes, low.size()));
}

}  // namespace

CharacterSet::CharacterSet(std::vector<CharacterRange> ranges) : ranges_(std::move(ranges)) {
  Normalise();
}

void CharacterSet::Add(char32_t low, char32_t high) {
  ranges_.push_back({low, high});
  Normalise();
}

void CharacterSet::AddAll(const CharacterSet& other) {
  ranges_.insert(ranges_.end(), other.ranges_.begin(), other.ranges_.end());
  Normalise();
}

CharacterSet CharacterSet::Complement() const {
  CharacterSet taken = *this;
  taken.Add(kSurrogates.low, kSurrogates.high);
  CharacterSet others;
  char32_t next = 0;
  for (const CharacterRange& range : taken.ranges_) {
    if (range.low > next) others.ranges_.push_back({next, range.low - 1});
    next = range.high + 1;
  }
  if (next <= kMaxCodePoint) others.ranges_.push_back({next, kMaxCodePoint});
  return others;
}

void CharacterSet::Normalise() {
  std::sort(ranges_.begin(), ranges_.end(),
            [](const CharacterRange& a, const CharacterRange& b) { return a.low < b.low; });
  size_t kept = 0;
  for (const CharacterRange& range : ranges_) {
    if (kept > 0 && range.low <= ranges_[kept - 1].high + 1) {
      ranges_[kept - 1].high = std::max(ranges_[kept - 1].high, range.high);
    } else {
      ranges_[kept++] = range;
    }
  }
  ranges_.resize(kept);
}

void ForEachUtf8Range(CharacterRange range, const FoundUtf8& found) {
  ForEachLength(range, [&](CharacterRange part) { SplitUtf8(part, found); });
}

}  // namespace pagefuse
