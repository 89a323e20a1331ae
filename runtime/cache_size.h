// SPDX-License-Identifier: Apache-2.0
// How large the pools of an engine's cache are.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "pagefuse/runtime/cache_layout.h"

namespace pagefuse {

struct CacheSize {
  int64_t tokens = 0;  // that groups without a window can hold in all; 0: what `bytes` come to
  int64_t bytes = 0;   // of all groups
  int64_t max_sequences = 1;
  int64_t step_tokens = 1;
};

// Blocks of each group of the layout. Groups that keep last rows have what so many sequences need at
// once and what checkpoints of texts keep, but no more than there are tokens.
std::vector<int64_t> BlocksOf(const CacheLayout& layout, const CacheSize& size);

// Tokens of a cache of so many bytes, at least one.
int64_t TokensOf(const CacheLayout& layout, const CacheSize& size);

}  // namespace pagefuse
