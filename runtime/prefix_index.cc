// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/runtime/prefix_index.h"

#include <algorithm>

namespace pagefuse {
namespace {

constexpr size_t kMostCompared = 8;

int64_t CommonLength(std::span<const int64_t> a, std::span<const int64_t> b) {
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
}

}  // namespace

std::optional<SharedPrefix> PrefixIndex::Longest(std::span<const int64_t> tokens,
                                                 const std::vector<size_t>& alike) const {
  SharedPrefix longest;
  for (const size_t request : alike) {
    const int64_t common = std::min<int64_t>(CommonLength(tokens, texts_[request].tokens),
                                             static_cast<int64_t>(tokens.size()) - 1);
    if (common > longest.length) longest = {request, common};
  }
  if (longest.length < kLeast) return std::nullopt;
  // Who has it from another one has no more of it than that one.
  while (const auto& from = texts_[longest.request].prefix) {
    if (from->length < longest.length) break;
    longest.request = from->request;
  }
  return longest;
}

std::optional<SharedPrefix> PrefixIndex::Add(std::span<const int64_t> tokens) {
  std::optional<SharedPrefix> prefix;
  if (static_cast<int64_t>(tokens.size()) > kLeast) {
    const std::span<const int64_t> head = tokens.first(kLeast);
    std::vector<size_t>& alike = alike_[{head.begin(), head.end()}];
    prefix = Longest(tokens, alike);
    if (alike.size() == kMostCompared) alike.erase(alike.begin() + 1);
    alike.push_back(texts_.size());
  }
  texts_.push_back({tokens, prefix});
  return prefix;
}

}  // namespace pagefuse
