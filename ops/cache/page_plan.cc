// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/cache/page_plan.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace pagefuse {
namespace {

// How many layers each of so many parts has.
std::vector<int64_t> EvenParts(int64_t layers, int64_t parts) {
  std::vector<int64_t> sizes;
  for (int64_t i = 0; i < parts; ++i) {
    sizes.push_back(layers * (i + 1) / parts - layers * i / parts);
  }
  return sizes;
}

int64_t LargestBlock(const PageGroup& group, const std::vector<int64_t>& parts) {
  int64_t largest = 0;
  auto layer = group.layer_bytes.begin();
  for (const int64_t layers : parts) {
    largest = std::max(largest, std::accumulate(layer, layer + layers, int64_t{0}));
    layer += layers;
  }
  return largest;
}

// Tries every number of parts of every group.
class Search {
 public:
  explicit Search(const std::vector<PageGroup>& groups) {
    current_.groups = groups;
    current_.parts.resize(groups.size());
  }

  PagePlan Run() {
    TryBlocks(0);
    return best_;
  }

 private:
  // Blocks of the groups from `g` on.
  void TryBlocks(size_t g) {
    if (g == current_.groups.size()) return Try(0, kMostPageParts, 0);
    const PageGroup whole = current_.groups[g];
    PageGroup& group = current_.groups[g];
    while (true) {
      TryBlocks(g + 1);
      if (!group.may_shrink || group.group.block_size % 2 != 0) break;
      group.group.block_size /= 2;
      for (int64_t& bytes : group.layer_bytes) bytes /= 2;
    }
    group = whole;
  }

  // Parts of the groups from `g` on, of which there are `left`.
  void Try(size_t g, int64_t left, int64_t page_bytes) {
    if (g == current_.groups.size()) return Judge(page_bytes);
    const PageGroup& group = current_.groups[g];
    const auto others = static_cast<int64_t>(current_.groups.size() - g) - 1;
    const auto layers = static_cast<int64_t>(group.layer_bytes.size());
    const int64_t most = std::clamp<int64_t>(left - others, 1, layers);
    for (int64_t parts = 1; parts <= most; ++parts) {
      current_.parts[g] = EvenParts(layers, parts);
      Try(g + 1, left - parts, std::max(page_bytes, LargestBlock(group, current_.parts[g])));
    }
  }

  void Judge(int64_t page_bytes) {
    current_.page_bytes = page_bytes;
    const double waste = PageWaste(current_, kPlannedTokens);
    const bool accepted = waste <= kAcceptedWaste, was = best_waste_ <= kAcceptedWaste;
    const int64_t parts = current_.num_parts();
    bool better = waste < best_waste_;
    if (accepted && was && parts != best_parts_) better = parts < best_parts_;
    if (!better) return;
    best_ = current_;
    best_waste_ = waste;
    best_parts_ = parts;
  }

  PagePlan current_, best_;
  double best_waste_ = std::numeric_limits<double>::infinity();
  int64_t best_parts_ = 0;
};

}  // namespace

int64_t PagePlan::num_parts() const {
  int64_t count = 0;
  for (const std::vector<int64_t>& of_group : parts) count += static_cast<int64_t>(of_group.size());
  return count;
}

int64_t BlocksAt(const CacheGroup& group, int64_t tokens) {
  const int64_t first = group.FirstVisible(tokens), rows = group.RowsOf(tokens);
  if (first >= rows) return 0;
  return (rows - 1) / group.block_size - first / group.block_size + 1;
}

double PageWaste(const PagePlan& plan, int64_t tokens) {
  double pages = 0, rows = 0;
  for (size_t g = 0; g < plan.groups.size(); ++g) {
    const CacheGroup& group = plan.groups[g].group;
    const std::vector<int64_t>& layers = plan.groups[g].layer_bytes;
    const auto block = std::accumulate(layers.begin(), layers.end(), 0.0);
    const int64_t kept = group.RowsOf(tokens) - group.FirstVisible(tokens);
    rows += block * static_cast<double>(kept) / static_cast<double>(group.block_size);
    pages += static_cast<double>(BlocksAt(group, tokens)) *
             static_cast<double>(plan.parts[g].size()) * static_cast<double>(plan.page_bytes);
  }
  return rows > 0 ? pages / rows - 1 : 0;
}

PagePlan PlanPages(const std::vector<PageGroup>& groups) { return Search(groups).Run(); }

}  // namespace pagefuse
