// SPDX-License-Identifier: Apache-2.0
// A text that remembers which parts of it users wrote: a template may move, cut and join these
// parts, and they stay the text of users.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "pagefuse/text/text_range.h"

namespace pagefuse {

class MarkedText {
 public:
  MarkedText() = default;
  // Of the template.
  explicit MarkedText(std::string bytes) : bytes_(std::move(bytes)) {}
  static MarkedText OfUser(std::string bytes) {
    MarkedText text(std::move(bytes));
    if (!text.bytes_.empty()) text.user_.push_back({0, text.bytes_.size()});
    return text;
  }
  // Bytes that were computed from a text as a whole: of the user if any of it is.
  MarkedText Computed(std::string bytes) const {
    return user_.empty() ? MarkedText(std::move(bytes)) : OfUser(std::move(bytes));
  }

  const std::string& bytes() const { return bytes_; }
  // Ascending, none touching.
  const std::vector<TextRange>& user() const { return user_; }
  size_t size() const { return bytes_.size(); }

  void Append(const MarkedText& other) {
    for (const TextRange& range : other.user_) Mark(size() + range.first, size() + range.end);
    bytes_ += other.bytes_;
  }
  MarkedText Substr(size_t first, size_t end) const {
    MarkedText part(bytes_.substr(first, end - first));
    part.user_ = Within(user_, first, end);
    return part;
  }

 private:
  void Mark(size_t first, size_t end) {
    if (!user_.empty() && user_.back().end == first) {
      user_.back().end = end;
    } else {
      user_.push_back({first, end});
    }
  }

  std::string bytes_;
  std::vector<TextRange> user_;
};

}  // namespace pagefuse
