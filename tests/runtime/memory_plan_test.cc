// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/runtime/memory_plan.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace pagefuse {
namespace {

TEST(MemoryPlan, StoragesOfDifferentTimesShareMemory) {
  MemoryPlan plan = PlanMemory({{0, 1, 128}, {2, 3, 128}});
  EXPECT_EQ(plan.arena_bytes, 128);
  EXPECT_EQ(plan.offsets[0], plan.offsets[1]);
}

TEST(MemoryPlan, AReaderInTheStepThatWritesKeepsThemApart) {
  MemoryPlan plan = PlanMemory({{0, 2, 128}, {2, 3, 64}});
  EXPECT_EQ(plan.arena_bytes, 192);
}

// The definition: every storage against every one that was placed before.
MemoryPlan PlanByComparingAll(const std::vector<Storage>& storages) {
  MemoryPlan plan;
  plan.offsets.assign(storages.size(), 0);
  plan.sizes.assign(storages.size(), 0);
  std::vector<size_t> order(storages.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return storages[a].bytes > storages[b].bytes; });
  std::vector<size_t> placed;
  for (size_t id : order) {
    plan.sizes[id] = (storages[id].bytes + 63) / 64 * 64;
    if (plan.sizes[id] == 0) continue;
    std::vector<std::pair<int64_t, int64_t>> taken;
    for (size_t other : placed) {
      const bool together = storages[id].first_step <= storages[other].last_step &&
                            storages[other].first_step <= storages[id].last_step;
      if (together)
        taken.emplace_back(plan.offsets[other], plan.offsets[other] + plan.sizes[other]);
    }
    std::sort(taken.begin(), taken.end());
    for (const auto& [begin, end] : taken) {
      if (begin - plan.offsets[id] >= plan.sizes[id]) break;
      plan.offsets[id] = std::max(plan.offsets[id], end);
    }
    plan.arena_bytes = std::max(plan.arena_bytes, plan.offsets[id] + plan.sizes[id]);
    placed.push_back(id);
  }
  return plan;
}

TEST(MemoryPlan, IsThatOfComparingAllStorages) {
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    std::vector<Storage> storages(random() % 80);
    const int longest = 1 + static_cast<int>(random() % 40);
    for (Storage& storage : storages) {
      storage.first_step = static_cast<int>(random() % 50);
      storage.last_step = storage.first_step + static_cast<int>(random() % longest);
      storage.bytes = random() % (round % 2 == 0 ? 300 : 5000);
    }
    const MemoryPlan plan = PlanMemory(storages);
    const MemoryPlan expected = PlanByComparingAll(storages);
    EXPECT_EQ(plan.offsets, expected.offsets) << "round " << round;
    EXPECT_EQ(plan.sizes, expected.sizes) << "round " << round;
    EXPECT_EQ(plan.arena_bytes, expected.arena_bytes) << "round " << round;
  }
}

TEST(MemoryPlan, RandomStoragesAliveTogetherNeverOverlap) {
  std::mt19937 random(3);
  for (int round = 0; round < 100; ++round) {
    std::vector<Storage> storages(1 + random() % 60);
    for (Storage& storage : storages) {
      storage.first_step = static_cast<int>(random() % 30);
      storage.last_step = storage.first_step + static_cast<int>(random() % 8);
      storage.bytes = random() % 1000;
    }
    const MemoryPlan plan = PlanMemory(storages);
    int64_t peak = 0;
    for (int step = 0; step < 40; ++step) {
      int64_t alive = 0;
      for (size_t a = 0; a < storages.size(); ++a) {
        if (storages[a].first_step > step || storages[a].last_step < step) continue;
        alive += plan.sizes[a];
        EXPECT_GE(plan.sizes[a], storages[a].bytes);
        EXPECT_EQ(plan.offsets[a] % 64, 0);
        EXPECT_LE(plan.offsets[a] + plan.sizes[a], plan.arena_bytes);
        for (size_t b = 0; b < a; ++b) {
          if (storages[b].first_step > step || storages[b].last_step < step) continue;
          EXPECT_TRUE(plan.offsets[a] + plan.sizes[a] <= plan.offsets[b] ||
                      plan.offsets[b] + plan.sizes[b] <= plan.offsets[a]);
        }
      }
      peak = std::max(peak, alive);
    }
    EXPECT_GE(plan.arena_bytes, peak);
  }
}

}  // namespace
}  // namespace pagefuse
