// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/runtime/cache_size.h"

#include <algorithm>
#include <limits>

#include "pagefuse/runtime/drafts.h"
#include "pagefuse/runtime/prefix_tree.h"

namespace pagefuse {
namespace {

// Positions are int32.
constexpr int64_t kMostTokens = std::numeric_limits<int32_t>::max();
// Of all texts: more than any pages hold.
constexpr int64_t kMostOfAll = int64_t{1} << 40;

int64_t Times(int64_t a, int64_t b) {
  return std::min(CheckedMul(a, b).value_or(kMostOfAll), kMostOfAll);
}

int64_t BlocksOfGroup(const CacheLayout& layout, const CacheGroup& group, const CacheSize& size,
                      int64_t tokens) {
  // A block at the least, and one more for the window that is open.
  const int64_t all = BlocksOfRows(std::max<int64_t>(group.RowsOf(tokens), 1), group.block_size);
  if (group.sliding_window == 0) return all;
  const int64_t unit = PrefixTree::UnitOf(layout.groups());
  // Windows that end at the last whole node, and one block cut at either end.
  const int64_t window =
      BlocksOfRows(group.sliding_window + unit + Drafts::kMost, group.block_size) + 2;
  const int64_t every = PrefixTree::CheckpointEvery(layout.groups());
  const int64_t checkpoints = Times(tokens / every + size.max_sequences,
                                    BlocksOfRows(group.sliding_window, group.block_size) + 1);
  const int64_t most = Times(size.max_sequences, window) + checkpoints +
                       std::min(BlocksOfRows(size.step_tokens, group.block_size), kMostOfAll);
  const int64_t least = layout.BlocksFor(group, {tokens}, size.step_tokens);
  // Each row is one of a token, and each sequence may have a block that is not full behind one that is.
  const int64_t rows = all + std::min(size.max_sequences, all);
  return std::max(std::min(most, rows), least);
}

int64_t PagesOfTokens(const CacheLayout& layout, const CacheSize& size, int64_t tokens) {
  int64_t pages = 0;
  for (const CacheGroup& group : layout.groups()) {
    pages += BlocksOfGroup(layout, group, size, tokens);
  }
  return pages;
}

}  // namespace

int64_t PagesOf(const CacheLayout& layout, const CacheSize& size) {
  const int64_t most = layout.MostPages();
  if (size.tokens > 0) {
    return std::min(PagesOfTokens(layout, size, std::min(size.tokens, kMostOfAll)), most);
  }
  const int64_t pages = size.bytes / std::max<int64_t>(layout.bytes_per_page(), 1);
  return std::min({pages, PagesOfTokens(layout, size, kMostTokens), most});
}

int64_t LeastPages(const CacheLayout& layout, int64_t step_tokens) {
  return layout.PagesFor({1}, step_tokens);
}

}  // namespace pagefuse
