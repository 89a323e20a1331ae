#include "pagefuse/text/model/stop_match.h"

#include <algorithm>
#include <utility>

namespace pagefuse {

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
