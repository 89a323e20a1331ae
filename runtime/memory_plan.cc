#include "pagefuse/runtime/memory_plan.h"

#include <algorithm>
#include <numeric>

namespace pagefuse {
namespace {

constexpr int64_t kAlignment = 64;

bool AliveTogether(const Storage& a, const Storage& b) {
  return a.first_step <= b.last_step && b.first_step <= a.last_step;
}

// The lowest offset for `bytes` that avoids `taken`, which is sorted by offset.
int64_t LowestGap(const std::vector<std::pair<int64_t, int64_t>>& taken, int64_t bytes) {
  int64_t offset = 0;
  for (const auto& [begin, end] : taken) {
    if (begin - offset >= bytes) break;
    offset = std::max(offset, end);
  }
  return offset;
}

}  // namespace

MemoryPlan PlanMemory(const std::vector<Storage>& storages) {
  MemoryPlan plan;
  plan.offsets.assign(storages.size(), 0);
  plan.sizes.assign(storages.size(), 0);
  std::vector<size_t> order(storages.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return storages[a].bytes > storages[b].bytes; });

  std::vector<size_t> placed;
  std::vector<std::pair<int64_t, int64_t>> taken;
  for (size_t id : order) {
    const int64_t bytes = (storages[id].bytes + kAlignment - 1) / kAlignment * kAlignment;
    if (bytes == 0) continue;
    taken.clear();
    for (size_t other : placed) {
      if (!AliveTogether(storages[id], storages[other])) continue;
      taken.emplace_back(plan.offsets[other], plan.offsets[other] + plan.sizes[other]);
    }
    std::sort(taken.begin(), taken.end());
    plan.offsets[id] = LowestGap(taken, bytes);
    plan.sizes[id] = bytes;
    plan.arena_bytes = std::max(plan.arena_bytes, plan.offsets[id] + bytes);
    placed.push_back(id);
  }
  return plan;
}

}  // namespace pagefuse
