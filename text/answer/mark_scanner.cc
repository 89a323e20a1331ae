// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/text/answer/mark_scanner.h"

#include <algorithm>

namespace pagefuse {

void MarkScanner::Seek(std::vector<std::string_view> marks) { marks_ = std::move(marks); }

std::optional<size_t> MarkScanner::Add(char c, std::string* text) {
  held_ += c;
  while (!held_.empty() && !MayBeMark()) {
    *text += held_.front();
    held_.erase(0, 1);
  }
  const auto found = std::find(marks_.begin(), marks_.end(), held_);
  if (held_.empty() || found == marks_.end()) return std::nullopt;
  held_.clear();
  return found - marks_.begin();
}

bool MarkScanner::MayBeMark() const {
  return std::any_of(marks_.begin(), marks_.end(),
                     [this](std::string_view mark) { return mark.starts_with(held_); });
}

}  // namespace pagefuse
