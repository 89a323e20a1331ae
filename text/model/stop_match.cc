// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/text/model/stop_match.h"

#include <algorithm>
#include <utility>

#include "pagefuse/base/str_cat.h"

namespace pagefuse {

absl::StatusOr<std::vector<int64_t>> StopTokens(const Tokenizer& tokenizer,
                                                const std::vector<std::string>& stops) {
  std::vector<int64_t> tokens;
  for (const std::string& stop : stops) {
    if (stop.empty()) return absl::InvalidArgumentError("expected a text, got none");
    if (const auto token = tokenizer.Find(stop); token && tokenizer.IsSpecial(*token)) {
      tokens.push_back(*token);
      continue;
    }
    const auto ids = tokenizer.Encode(stop, {.adds_special = false});
    if (!ids.ok()) continue;
    for (const int64_t id : *ids) {
      const std::string name = tokenizer.IsSpecial(id) ? tokenizer.Decode({&id, 1}, true) : "";
      if (name.empty() || stop.find(name) == std::string::npos) continue;
      return absl::InvalidArgumentError(
          StrCat("expected a text, or a special token alone, got the special token \"", name,
                 "\" within \"", stop, "\""));
    }
  }
  return tokens;
}

StopMatch::StopMatch(std::vector<std::string> stops) : stops_(std::move(stops)) {
  std::erase(stops_, "");
  std::stable_sort(stops_.begin(), stops_.end(),
                   [](const std::string& a, const std::string& b) { return a.size() > b.size(); });
}

int StopMatch::StopAtEnd() const {
  for (size_t i = 0; i < stops_.size(); ++i) {
    if (held_.ends_with(stops_[i])) return static_cast<int>(i);
  }
  return -1;
}

// The longest end of what is held that a stop begins with.
size_t StopMatch::HeldBytes() const {
  size_t longest = 0;
  for (const std::string& stop : stops_) {
    for (size_t size = std::min(stop.size() - 1, held_.size()); size > longest; --size) {
      if (held_.ends_with(std::string_view(stop).substr(0, size))) longest = size;
    }
  }
  return longest;
}

std::string StopMatch::Add(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size() && !stopped(); ++i) {
    held_.push_back(text[i]);
    stop_ = StopAtEnd();
    const size_t kept = stopped() ? stop().size() : HeldBytes();
    out.append(held_, 0, held_.size() - kept);
    held_.erase(0, held_.size() - kept);
  }
  if (stopped()) held_.clear();
  return out;
}

std::string StopMatch::Finish() { return std::exchange(held_, ""); }

}  // namespace pagefuse
