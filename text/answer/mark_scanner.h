// SPDX-License-Identifier: Apache-2.0
// Finds marks in a text that comes one byte at a time. What may still become a mark is held back, so
// that no text has half a mark.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pagefuse {

class MarkScanner {
 public:
  MarkScanner() = default;
  explicit MarkScanner(std::vector<std::string_view> marks) { Seek(std::move(marks)); }

  // None is empty, none is the beginning of another. What is held back stays.
  void Seek(std::vector<std::string_view> marks);

  // Takes a byte, and appends to *text what no mark can have any more. The mark, by its number, that
  // the byte completes; it lies behind all of the text.
  std::optional<size_t> Add(char c, std::string* text);
  // What is held back, which is then text.
  std::string Take() { return std::exchange(held_, std::string()); }

 private:
  bool MayBeMark() const;

  std::vector<std::string_view> marks_;
  std::string held_;
};

}  // namespace pagefuse
