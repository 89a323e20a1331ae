// SPDX-License-Identifier: Apache-2.0
// Pages of one size for the caches of a paged graph, so that memory goes to whichever group needs it.
//
// A page holds a block of one group, at the same place for each of its layers; what the block leaves of
// the page is lost. Where groups have blocks of very different sizes, the larger ones are cut into parts
// of consecutive layers: a part has a block table of its own, and is a group like any other.
#pragma once

#include <cstdint>
#include <vector>

#include "pagefuse/ops/cache/cache_groups.h"

namespace pagefuse {

// Parts of all groups together, at most: each is a table that every step fills.
inline constexpr int64_t kMostPageParts = 16;
// What is lost of a sequence of so many tokens, as a share of what its rows need.
inline constexpr int64_t kPlannedTokens = 4096;
inline constexpr double kAcceptedWaste = 0.05;

// A group, and the bytes of a block of each of its layers, in the order in which they run.
struct PageGroup {
  CacheGroup group;
  std::vector<int64_t> layer_bytes;
  // Its blocks may have half as many rows, a quarter, ... : states have few.
  bool may_shrink = false;
};

struct PagePlan {
  int64_t page_bytes = 0;                   // of the largest block of a part
  std::vector<PageGroup> groups;            // with the blocks that are chosen
  std::vector<std::vector<int64_t>> parts;  // by group: layers of each part

  int64_t num_parts() const;
};

// Blocks that a sequence of `tokens` has of the group between two steps: those of rows that later
// tokens see.
int64_t BlocksAt(const CacheGroup& group, int64_t tokens);
// Bytes of the pages of such a sequence over those of its rows, less 1.
double PageWaste(const PagePlan& plan, int64_t tokens);

// The fewest parts with which a sequence of kPlannedTokens wastes no more than kAcceptedWaste; where
// none of up to kMostPageParts does, those that waste least. Parts of a group have equally many layers,
// or one more.
PagePlan PlanPages(const std::vector<PageGroup>& groups);

}  // namespace pagefuse
