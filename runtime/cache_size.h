// SPDX-License-Identifier: Apache-2.0
// How many pages an engine's cache has.
#pragma once

#include <cstdint>

#include "pagefuse/runtime/cache_layout.h"

namespace pagefuse {

struct CacheSize {
  int64_t tokens = 0;  // that groups without a window can hold in all; 0: what `bytes` come to
  int64_t bytes = 0;   // of all pages
  int64_t max_sequences = 1;
  int64_t step_tokens = 1;
};

// Pages for so many tokens: groups that keep last rows have what so many sequences need at once and
// what checkpoints of texts keep, but no more than there are tokens. For so many bytes: as many as
// they come to, and as there can be tokens.
int64_t PagesOf(const CacheLayout& layout, const CacheSize& size);

// A block of each group for a token: without these nothing runs.
int64_t LeastPages(const CacheLayout& layout, int64_t step_tokens);

}  // namespace pagefuse
