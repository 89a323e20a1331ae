// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/runtime/page_pool.h"

#include <map>
#include <random>

#include <gtest/gtest.h>

namespace pagefuse {
namespace {

TEST(PagePool, FreeReturnsPagesLastFirst) {
  PagePool pool({.num_pages = 3});
  const int32_t first = *pool.Allocate();
  const int32_t second = *pool.Allocate();
  pool.Release(first);
  pool.Release(second);
  EXPECT_EQ(*pool.Allocate(), second);
  EXPECT_EQ(*pool.Allocate(), first);
}

TEST(PagePool, AnEmptyPoolSaysSoAndStaysUsable) {
  PagePool pool({.num_pages = 1});
  const int32_t page = *pool.Allocate();
  EXPECT_EQ(pool.Allocate().status().code(), absl::StatusCode::kResourceExhausted);
  pool.Release(page);
  EXPECT_TRUE(pool.Allocate().ok());
}

TEST(PagePool, ASharedPageIsFreeWhenItsLastHolderLetsGo) {
  PagePool pool({.num_pages = 1});
  const int32_t page = *pool.Allocate();
  pool.AddReference(page);
  pool.Release(page);
  EXPECT_EQ(pool.num_free(), 0);
  pool.Release(page);
  EXPECT_EQ(pool.num_free(), 1);
}

TEST(PagePool, ManyPagesCostNothingUntilTheyAreUsed) {
  PagePool pool({.num_pages = PagePool::kMaxPages});
  EXPECT_EQ(pool.num_free(), PagePool::kMaxPages);
  EXPECT_EQ(*pool.Allocate(), 0);
  EXPECT_EQ(*pool.Allocate(), 1);
  EXPECT_EQ(pool.num_used(), 2);
}

TEST(PagePool, APoolOfNoPagesIsFull) {
  PagePool pool({.num_pages = 0});
  EXPECT_FALSE(pool.Allocate().ok());
  EXPECT_EQ(pool.num_used(), 0);
}

using PagePoolDeathTest = testing::Test;

TEST(PagePoolDeathTest, AFreePageCannotBeFreedAgain) {
  PagePool pool({.num_pages = 2});
  const int32_t page = *pool.Allocate();
  pool.Release(page);
  EXPECT_DEATH(pool.Release(page), "broken invariant");
  EXPECT_DEATH(pool.AddReference(1), "broken invariant");
  EXPECT_DEATH(pool.Release(-1), "broken invariant");
  EXPECT_DEATH(pool.Release(2), "broken invariant");
}

TEST(PagePool, RandomCallsKeepTheAccounts) {
  std::mt19937 random(17);
  for (int64_t pages : {1, 2, 7, 50}) {
    PagePool pool({.num_pages = pages});
    std::map<int32_t, int32_t> held;  // the naive model: page -> holders
    for (int call = 0; call < 5000; ++call) {
      auto any = held.begin();
      if (!held.empty()) std::advance(any, random() % held.size());
      switch (random() % 5) {
        case 0:
        case 1: {
          const absl::StatusOr<int32_t> page = pool.Allocate();
          ASSERT_EQ(page.ok(), static_cast<int64_t>(held.size()) < pages);
          if (!page.ok()) break;
          ASSERT_GE(*page, 0);
          ASSERT_LT(*page, pages);
          ASSERT_TRUE(held.emplace(*page, 1).second) << "two owners of " << *page;
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
      ASSERT_EQ(pool.num_free() + pool.num_used(), pages);
      for (int32_t page = 0; page < pages; ++page) {
        ASSERT_EQ(pool.references(page), held.contains(page) ? held[page] : 0);
      }
    }
  }
}

}  // namespace
}  // namespace pagefuse
