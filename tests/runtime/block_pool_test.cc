// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/runtime/block_pool.h"

#include <map>
#include <random>

#include <gtest/gtest.h>

namespace pagefuse {
namespace {

TEST(BlockPool, FreeReturnsBlocksLastFirst) {
  BlockPool pool({.num_blocks = 3});
  const int32_t first = *pool.Allocate();
  const int32_t second = *pool.Allocate();
  pool.Release(first);
  pool.Release(second);
  EXPECT_EQ(*pool.Allocate(), second);
  EXPECT_EQ(*pool.Allocate(), first);
}

TEST(BlockPool, AnEmptyPoolSaysSoAndStaysUsable) {
  BlockPool pool({.num_blocks = 1});
  const int32_t block = *pool.Allocate();
  EXPECT_EQ(pool.Allocate().status().code(), absl::StatusCode::kResourceExhausted);
  pool.Release(block);
  EXPECT_TRUE(pool.Allocate().ok());
}

TEST(BlockPool, ASharedBlockIsFreeWhenItsLastHolderLetsGo) {
  BlockPool pool({.num_blocks = 1});
  const int32_t block = *pool.Allocate();
  pool.AddReference(block);
  pool.Release(block);
  EXPECT_EQ(pool.num_free(), 0);
  pool.Release(block);
  EXPECT_EQ(pool.num_free(), 1);
}

TEST(BlockPool, ManyBlocksCostNothingUntilTheyAreUsed) {
  BlockPool pool({.num_blocks = BlockPool::kMaxBlocks});
  EXPECT_EQ(pool.num_free(), BlockPool::kMaxBlocks);
  EXPECT_EQ(*pool.Allocate(), 0);
  EXPECT_EQ(*pool.Allocate(), 1);
  EXPECT_EQ(pool.num_used(), 2);
}

TEST(BlockPool, APoolOfNoBlocksIsFull) {
  BlockPool pool({.num_blocks = 0});
  EXPECT_FALSE(pool.Allocate().ok());
  EXPECT_EQ(pool.num_used(), 0);
}

using BlockPoolDeathTest = testing::Test;

TEST(BlockPoolDeathTest, AFreeBlockCannotBeFreedAgain) {
  BlockPool pool({.num_blocks = 2});
  const int32_t block = *pool.Allocate();
  pool.Release(block);
  EXPECT_DEATH(pool.Release(block), "broken invariant");
  EXPECT_DEATH(pool.AddReference(1), "broken invariant");
  EXPECT_DEATH(pool.Release(-1), "broken invariant");
  EXPECT_DEATH(pool.Release(2), "broken invariant");
}

TEST(BlockPool, RandomCallsKeepTheAccounts) {
  std::mt19937 random(17);
  for (int64_t blocks : {1, 2, 7, 50}) {
    BlockPool pool({.num_blocks = blocks});
    std::map<int32_t, int32_t> held;  // the naive model: block -> holders
    for (int call = 0; call < 5000; ++call) {
      auto any = held.begin();
      if (!held.empty()) std::advance(any, random() % held.size());
      switch (random() % 5) {
        case 0:
        case 1: {
          const absl::StatusOr<int32_t> block = pool.Allocate();
          ASSERT_EQ(block.ok(), static_cast<int64_t>(held.size()) < blocks);
          if (!block.ok()) break;
          ASSERT_GE(*block, 0);
          ASSERT_LT(*block, blocks);
          ASSERT_TRUE(held.emplace(*block, 1).second) << "two owners of " << *block;
          break;
        }
        case 2:
          if (held.empty()) break;
          pool.AddReference(any->first);
          ++any->second;
          break;
        default:
          if (held.empty()) break;
          pool.Release(any->first);
          if (--any->second == 0) held.erase(any);
      }
      ASSERT_EQ(pool.num_used(), static_cast<int64_t>(held.size()));
      ASSERT_EQ(pool.num_free() + pool.num_used(), blocks);
      for (int32_t block = 0; block < blocks; ++block) {
        ASSERT_EQ(pool.references(block), held.contains(block) ? held[block] : 0);
      }
    }
  }
}

}  // namespace
}  // namespace pagefuse
