// SPDX-License-Identifier: Apache-2.0
// Steps that are planned while the one before them runs are those that would be planned behind it.
#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "must.h"
#include <gtest/gtest.h>

#include "pagefuse/runtime/scheduler.h"

namespace pagefuse {
namespace {

constexpr int64_t kBlock = 4, kWindow = 6;

std::vector<CacheGroup> Groups() {
  CacheGroup full, window;
  full.name = "full";
  window.name = "window";
  full.block_size = window.block_size = kBlock;
  window.sliding_window = kWindow;
  return {full, window};
}

// A scheduler whose steps write to memory who stands where, and find all that their tokens see.
class Planner {
 public:
  Planner(int64_t pages, const Scheduler::Options& options, bool plans_ahead)
      : cache_(Groups(), pages), scheduler_(&cache_, options), plans_ahead_(plans_ahead) {}

  size_t Add(int64_t read, int64_t most) {
    std::vector<int64_t>& tokens = tokens_.emplace_back(static_cast<size_t>(read), int64_t{1});
    most_.push_back(most);
    return scheduler_.Add({.tokens = &tokens, .num_read = read, .most_tokens = most});
  }
  // The token behind what was computed, if it is to be run.
  void Take(const Scheduler::Work& work) {
    std::vector<int64_t>& tokens = tokens_[work.request];
    if (work.first_token + work.num_tokens >= most_[work.request]) return Finish(work.request);
    tokens.push_back(1);
  }
  void Finish(size_t request) { scheduler_.Finish(request); }
  bool done() const { return scheduler_.done(); }
  int64_t held() const { return cache_.pool().num_held(); }
  int64_t steps_ahead() const { return steps_ahead_; }

  // The next step is planned before this one is told to be run; `fails`: it was not.
  std::vector<Scheduler::Work> Step(bool fails) {
    if (ahead_ && !scheduler_.Holds(*ahead_)) DropAhead();
    steps_ahead_ += ahead_ ? 1 : 0;
    const Scheduler::Step step =
        ahead_ ? *std::exchange(ahead_, std::nullopt) : Must(scheduler_.Next());
    if (plans_ahead_) ahead_ = scheduler_.Ahead(step);
    if (fails) {
      DropAhead();
      scheduler_.RollBack();
      return {};
    }
    Look(step);
    scheduler_.Commit(step);
    EXPECT_TRUE(cache_.CheckAccounts().ok()) << cache_.CheckAccounts();
    return step.work;
  }
  void DropAhead() {
    if (std::exchange(ahead_, std::nullopt)) scheduler_.RollBack();
  }

 private:
  void Look(const Scheduler::Step& step) {
    size_t token = 0, row = 0;
    for (const Scheduler::Work& work : step.work) {
      for (int64_t i = 0; i < work.num_tokens; ++i, ++token) {
        const int64_t position = work.first_token + i;
        ASSERT_EQ(step.metadata->positions[token], position);
        if (work.by_token || i == 0) ++row;
        for (size_t g = 0; g < step.metadata->groups.size(); ++g) {
          const StepMetadata::Group& group = step.metadata->groups[g];
          memory_[{g, group.slot_mapping[token]}] = {work.request, position};
          for (int64_t p = g == 0 ? 0 : std::max<int64_t>(0, position - kWindow + 1); p <= position;
               ++p) {
            const auto place = static_cast<int64_t>(row - 1) * group.max_blocks + p / kBlock;
            const int64_t slot = group.block_table[place] * kBlock + p % kBlock;
            ASSERT_EQ((memory_[{g, slot}]), std::pair(work.request, p));
          }
        }
      }
    }
  }

  PagedCache cache_;
  Scheduler scheduler_;
  bool plans_ahead_;
  std::deque<std::vector<int64_t>> tokens_;
  std::vector<int64_t> most_;
  std::optional<Scheduler::Step> ahead_;
  std::map<std::pair<size_t, int64_t>, std::pair<size_t, int64_t>> memory_;  // by group and slot
  int64_t steps_ahead_ = 0;
};

bool Same(const std::vector<Scheduler::Work>& a, const std::vector<Scheduler::Work>& b) {
  return std::ranges::equal(a, b, [](const Scheduler::Work& x, const Scheduler::Work& y) {
    return x.request == y.request && x.first_token == y.first_token &&
           x.num_tokens == y.num_tokens && x.by_token == y.by_token && x.last == y.last;
  });
}

// Requests come and go, stop early, and steps fail.
TEST(SchedulerAhead, PlansWhatWouldBePlannedBehind) {
  std::mt19937 random(5);
  int64_t steps_ahead = 0;
  for (int round = 0; round < 150; ++round) {
    const int64_t pages = 24 + static_cast<int64_t>(random() % 30);
    const Scheduler::Options options{.max_tokens_per_step = 12,
                                     .max_sequences = static_cast<int64_t>(1 + random() % 6)};
    Planner behind(pages, options, false), ahead(pages, options, true);
    int64_t to_come = 8;
    for (int step = 0; to_come > 0 || !ahead.done(); ++step) {
      ASSERT_LT(step, 5000);
      if (to_come > 0 && (random() % 8 == 0 || ahead.done())) {
        const auto read = static_cast<int64_t>(1 + random() % 12);
        const auto most = read + static_cast<int64_t>(random() % 24);
        ASSERT_EQ(behind.Add(read, most), ahead.Add(read, most));
        --to_come;
      }
      const bool fails = random() % 16 == 0;
      const std::vector<Scheduler::Work> work = behind.Step(fails);
      ASSERT_TRUE(Same(work, ahead.Step(fails))) << round << " " << step;
      for (const Scheduler::Work& one : work) {
        if (!one.last) continue;
        const bool stops = random() % 20 == 0;
        for (Planner* run : {&behind, &ahead}) stops ? run->Finish(one.request) : run->Take(one);
      }
    }
    ahead.DropAhead();
    EXPECT_EQ(ahead.held(), 0);
    steps_ahead += ahead.steps_ahead();
  }
  EXPECT_GT(steps_ahead, 2000);
}

}  // namespace
}  // namespace pagefuse
