// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/runtime/drafts.h"

#include <algorithm>

#include "absl/hash/hash.h"

namespace pagefuse {
namespace {

constexpr int64_t kLongestPause = 32;

}  // namespace

std::vector<int64_t> Drafts::Propose(std::span<const int64_t> tokens, int64_t most) {
  const auto length = static_cast<int64_t>(tokens.size());
  const auto hash_at = [&](int64_t end) {
    return absl::HashOf(tokens[end - 3], tokens[end - 2], tokens[end - 1]);
  };
  // All but the last three themselves, which have nothing behind them yet.
  for (; indexed_ + 1 < length; ++indexed_) behind_[hash_at(indexed_ + 1)] = indexed_ + 1;
  if (length <= kKey || most <= 0) return {};
  if (paused_ > 0) {
    --paused_;
    return {};
  }
  const auto found = behind_.find(hash_at(length));
  if (found == behind_.end()) return {};
  const int64_t first = found->second;
  const int64_t count = std::min({most, width_, length - first});
  return {tokens.begin() + first, tokens.begin() + first + count};
}

void Drafts::Tell(int64_t proposed, int64_t accepted) {
  if (proposed == 0) return;
  if (accepted == proposed) {
    width_ = std::min(2 * width_, kMost);
    pause_ = 1;
  } else if (accepted > 0) {
    width_ = std::max<int64_t>(accepted, 1);
    pause_ = 1;
  } else {
    width_ = 1;
    paused_ = pause_;
    pause_ = std::min(2 * pause_, kLongestPause);
  }
}

}  // namespace pagefuse
