// SPDX-License-Identifier: Apache-2.0
// Sets of code points by their general category in Unicode 16: what tokenizers' patterns mean by \p{L} and \s. Libraries
// have older tables, and characters that they do not know would be split elsewhere.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

namespace pagefuse {

inline constexpr char32_t kLastCodePoint = 0x10FFFF;

// Ranges in ascending order that neither touch nor overlap.
class CodePointSet {
 public:
  struct Range {
    char32_t first, last;  // both included
  };

  void Add(char32_t first, char32_t last);
  void Add(const CodePointSet& other);
  CodePointSet Complement() const;
  bool Contains(char32_t point) const;
  const std::vector<Range>& ranges() const { return ranges_; }

 private:
  std::vector<Range> ranges_;
};

// "L", "Lu", "L&"; nothing for a name that is no general category.
std::optional<CodePointSet> CategorySet(std::string_view name);

const CodePointSet& WhiteSpace();
// What Rust's and Oniguruma's \w take: letters, marks, decimal and letter numbers, connectors, and
// the letters in circles.
const CodePointSet& WordCharacters();

}  // namespace pagefuse
