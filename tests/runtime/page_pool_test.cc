// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/runtime/page_pool.h"

#include <map>
#include <random>
#include <utility>

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

// What is known of a page that is not free, told naively.
struct Naive {
  int32_t holders = 0, kept = 0;
};

class RandomCalls {
 public:
  explicit RandomCalls(int64_t pages) : pages_(pages), pool_({.num_pages = pages}) {}

  void Call() {
    const uint64_t what = random_() % 8;
    if (what < 2) return Allocate();
    if (used_.empty()) return;
    auto any = used_.begin();
    std::advance(any, random_() % used_.size());
    auto& [page, naive] = *any;
    if (what == 2) {
      pool_.AddReference(page), ++naive.holders;
    } else if (what == 3) {
      pool_.Keep(page), ++naive.kept;
    } else if (what < 6 && naive.holders > 0) {
      pool_.Release(page), --naive.holders;
    } else if (naive.kept > 0) {
      pool_.Drop(page), --naive.kept;
    }
    ASSERT_EQ(pool_.references(page), naive.holders);
    ASSERT_EQ(pool_.kept(page), naive.kept > 0);
    if (naive.holders == 0 && naive.kept == 0) used_.erase(any);
  }
  void Check() {
    ASSERT_TRUE(pool_.CheckAccounts().ok()) << pool_.CheckAccounts();
    int64_t only_kept = 0;
    for (const auto& [page, naive] : used_) only_kept += naive.holders == 0 ? 1 : 0;
    ASSERT_EQ(pool_.num_used(), static_cast<int64_t>(used_.size()));
    ASSERT_EQ(pool_.num_free() + pool_.num_used(), pages_);
    ASSERT_EQ(pool_.num_kept(), only_kept);
    ASSERT_EQ(pool_.num_held() + pool_.num_kept(), pool_.num_used());
  }
  void LetGoOfAll() {
    for (const auto& [page, naive] : std::exchange(used_, {})) {
      for (int32_t i = 0; i < naive.holders; ++i) pool_.Release(page);
      for (int32_t i = 0; i < naive.kept; ++i) pool_.Drop(page);
    }
  }
  const PagePool& pool() const { return pool_; }

 private:
  void Allocate() {
    const absl::StatusOr<int32_t> page = pool_.Allocate();
    ASSERT_EQ(page.ok(), static_cast<int64_t>(used_.size()) < pages_);
    if (!page.ok()) return;
    ASSERT_GE(*page, 0);
    ASSERT_LT(*page, pages_);
    ASSERT_TRUE(used_.emplace(*page, Naive{.holders = 1}).second) << "two owners of " << *page;
  }

  int64_t pages_;
  PagePool pool_;
  std::mt19937 random_{17};
  std::map<int32_t, Naive> used_;
};

TEST(PagePool, AMillionRandomCallsKeepTheAccounts) {
  for (const int64_t pages : {1, 2, 7, 50}) {
    RandomCalls calls(pages);
    for (int i = 0; i < 250000; ++i) {
      calls.Call();
      calls.Check();
      if (testing::Test::HasFatalFailure()) FAIL() << "call " << i << " of " << pages << " pages";
    }
    calls.LetGoOfAll();
    EXPECT_EQ(calls.pool().num_used(), 0);
    EXPECT_TRUE(calls.pool().CheckAccounts().ok());
  }
}

}  // namespace
}  // namespace pagefuse
