// SPDX-License-Identifier: Apache-2.0
// A range of bytes in a text.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace pagefuse {

struct TextRange {
  size_t first = 0, end = 0;
};

// Whether one of the ranges (ascending, none overlapping) has a byte of [first, end).
inline bool Touches(const std::vector<TextRange>& ranges, size_t first, size_t end) {
  const auto next =
      std::upper_bound(ranges.begin(), ranges.end(), first,
                       [](size_t at, const TextRange& range) { return at < range.end; });
  return next != ranges.end() && next->first < end;
}

// The parts of ranges that lie in [first, end), counted from `first`.
inline std::vector<TextRange> Within(const std::vector<TextRange>& ranges, size_t first,
                                     size_t end) {
  std::vector<TextRange> parts;
  auto next = std::upper_bound(ranges.begin(), ranges.end(), first,
                               [](size_t at, const TextRange& range) { return at < range.end; });
  for (; next != ranges.end() && next->first < end; ++next) {
    const size_t from = std::max(next->first, first), to = std::min(next->end, end);
    if (from < to) parts.push_back({from - first, to - first});
  }
  return parts;
}

}  // namespace pagefuse
