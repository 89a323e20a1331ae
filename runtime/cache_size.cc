// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/runtime/cache_size.h"

#include <algorithm>
#include <limits>

#include "pagefuse/runtime/block_pool.h"
#include "pagefuse/runtime/drafts.h"
#include "pagefuse/runtime/prefix_tree.h"

namespace pagefuse {
namespace {

// Positions are int32.
constexpr int64_t kMostTokens = std::numeric_limits<int32_t>::max();

int64_t Divide(int64_t rows, int64_t block_size) { return (rows + block_size - 1) / block_size; }

int64_t BlocksOfGroup(const CacheLayout& layout, const CacheGroup& group, const CacheSize& size,
                      int64_t tokens) {
  // A block at the least, and one more for the window that is open.
  const int64_t all = Divide(std::max<int64_t>(group.RowsOf(tokens), 1), group.block_size);
  if (group.sliding_window == 0) return std::min(all, BlockPool::kMaxBlocks);
  const int64_t unit = PrefixTree::UnitOf(layout.groups());
  // Windows that end at the last whole node, and one block cut at either end.
  const int64_t window = Divide(group.sliding_window + unit + Drafts::kMost, group.block_size) + 2;
  const int64_t every = PrefixTree::CheckpointEvery(layout.groups());
  const int64_t checkpoints =
      (tokens / every + size.max_sequences) * (Divide(group.sliding_window, group.block_size) + 1);
  const int64_t most =
      size.max_sequences * window + checkpoints + Divide(size.step_tokens, group.block_size);
  const int64_t least = layout.BlocksFor(group, {tokens}, size.step_tokens);
  // Each row is one of a token, and each sequence may have a block that is not full.
  const int64_t rows = all + std::min(size.max_sequences, tokens);
  return std::min(std::max(std::min(most, rows), least), BlockPool::kMaxBlocks);
}

double BytesOf(const CacheLayout& layout, const CacheSize& size, int64_t tokens) {
  double bytes = 0;
  for (const CacheGroup& group : layout.groups()) {
    bytes += static_cast<double>(BlocksOfGroup(layout, group, size, tokens)) *
             static_cast<double>(layout.BlockBytes(group));
  }
  return bytes;
}

}  // namespace

int64_t TokensOf(const CacheLayout& layout, const CacheSize& size) {
  int64_t fits = 1;
  for (int64_t beyond = kMostTokens; beyond - fits > 1;) {
    const int64_t middle = fits + (beyond - fits) / 2;
    const bool here = BytesOf(layout, size, middle) <= static_cast<double>(size.bytes);
    (here ? fits : beyond) = middle;
  }
  return fits;
}

std::vector<int64_t> BlocksOf(const CacheLayout& layout, const CacheSize& size) {
  const int64_t tokens = size.tokens > 0 ? size.tokens : TokensOf(layout, size);
  std::vector<int64_t> blocks;
  for (const CacheGroup& group : layout.groups()) {
    blocks.push_back(BlocksOfGroup(layout, group, size, tokens));
  }
  return blocks;
}

}  // namespace pagefuse
