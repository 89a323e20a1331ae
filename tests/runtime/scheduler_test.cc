#include "pagefuse/runtime/scheduler.h"

#include <random>

#include <gtest/gtest.h>

namespace pagefuse {
namespace {

CacheGroup Group(int64_t blocks) {
  CacheGroup group;
  group.name = "full";
  group.block_size = 4;
  group.num_blocks = blocks;
  return group;
}

TEST(Scheduler, ALongPromptIsPrefilledInChunks) {
  PagedCache cache({Group(10)});
  Scheduler scheduler(&cache, {.max_tokens_per_step = 8, .max_sequences = 4});
  scheduler.Add(20);
  std::vector<int64_t> chunks;
  for (int i = 0; i < 3; ++i) {
    Scheduler::Step step = *scheduler.Next();
    ASSERT_EQ(step.work.size(), 1u);
    chunks.push_back(step.work[0].num_tokens);
    EXPECT_EQ(step.work[0].last, i == 2);
  }
  EXPECT_EQ(chunks, (std::vector<int64_t>{8, 8, 4}));
}

TEST(Scheduler, DecodesComeBeforePrefills) {
  PagedCache cache({Group(20)});
  Scheduler scheduler(&cache, {.max_tokens_per_step = 6, .max_sequences = 4});
  const size_t first = scheduler.Add(3);
  ASSERT_TRUE(scheduler.Next().ok());
  scheduler.AddToken(first);
  scheduler.Add(30);
  Scheduler::Step step = *scheduler.Next();
  ASSERT_EQ(step.work.size(), 2u);
  EXPECT_EQ(step.work[0].request, first);
  EXPECT_EQ(step.work[0].num_tokens, 1);
  EXPECT_EQ(step.work[1].num_tokens, 5);
}

TEST(Scheduler, ARequestThatNeverFitsIsNamed) {
  PagedCache cache({Group(2)});
  Scheduler scheduler(&cache, {.max_tokens_per_step = 64, .max_sequences = 4});
  scheduler.Add(9);
  auto step = scheduler.Next();
  EXPECT_EQ(step.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(step.status().message().find("request 0 with 9 tokens"), absl::string_view::npos);
}

TEST(Scheduler, TheYoungestGivesItsBlocksBackWhenTheyRunOut) {
  PagedCache cache({Group(4)});
  Scheduler scheduler(&cache, {.max_tokens_per_step = 64, .max_sequences = 4});
  const size_t old = scheduler.Add(8);
  const size_t young = scheduler.Add(8);
  ASSERT_EQ(scheduler.Next()->work.size(), 2u);
  scheduler.AddToken(old);
  scheduler.AddToken(young);
  Scheduler::Step step = *scheduler.Next();
  ASSERT_EQ(step.work.size(), 1u);
  EXPECT_EQ(step.work[0].request, old);
  EXPECT_EQ(scheduler.preemptions(), 1);
  scheduler.Finish(old);
  // The preempted one starts again from its first token.
  step = *scheduler.Next();
  ASSERT_EQ(step.work.size(), 1u);
  EXPECT_EQ(step.work[0].request, young);
  EXPECT_EQ(step.work[0].first_token, 0);
  EXPECT_EQ(step.work[0].num_tokens, 9);
}

// Requests with random lengths over pools of random size: each token is computed in order, and
// nothing is left allocated.
TEST(Scheduler, RandomLoadsRunEveryTokenInOrderAndLeaveNothing) {
  std::mt19937 random(11);
  for (int round = 0; round < 200; ++round) {
    PagedCache cache({Group(8 + random() % 20)});
    Scheduler scheduler(&cache, {.max_tokens_per_step = static_cast<int64_t>(1 + random() % 20),
                                 .max_sequences = static_cast<int64_t>(1 + random() % 5)});
    const size_t count = 1 + random() % 6;
    std::vector<int64_t> known(count), goal(count), computed(count, 0);
    for (size_t i = 0; i < count; ++i) {
      known[i] = 1 + random() % 12;
      goal[i] = known[i] + random() % 12;
      scheduler.Add(known[i]);
    }
    for (int steps = 0; !scheduler.done(); ++steps) {
      ASSERT_LT(steps, 5000);
      auto step = scheduler.Next();
      ASSERT_TRUE(step.ok()) << step.status();
      for (const Scheduler::Work& work : step->work) {
        ASSERT_TRUE(work.first_token == computed[work.request] || work.first_token == 0);
        computed[work.request] = work.first_token + work.num_tokens;
        ASSERT_EQ(work.last, computed[work.request] == known[work.request]);
        if (!work.last) continue;
        if (known[work.request] == goal[work.request]) {
          scheduler.Finish(work.request);
        } else {
          ++known[work.request];
          scheduler.AddToken(work.request);
        }
      }
    }
    EXPECT_EQ(known, goal);
    EXPECT_EQ(cache.blocks_in_use(), 0);
  }
}

}  // namespace
}  // namespace pagefuse
