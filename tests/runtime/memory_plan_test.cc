#include "pagefuse/runtime/memory_plan.h"

#include <algorithm>
#include <random>

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
