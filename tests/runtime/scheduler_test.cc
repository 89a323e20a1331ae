// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/runtime/scheduler.h"

#include <algorithm>
#include <deque>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "must.h"
#include <gtest/gtest.h>

namespace pagefuse {
namespace {

CacheGroup Group() {
  CacheGroup group;
  group.name = "full";
  group.block_size = 4;
  return group;
}

// A scheduler and the tokens of its requests, which have nothing in common unless that is asked for.
class Load : public Scheduler {
 public:
  using Scheduler::Scheduler;
  // A prompt of so many tokens; the first ones are those of `like`. `more`: that may be written.
  size_t Add(int64_t read, int64_t more = 0, size_t like = 0, int64_t alike = 0) {
    std::vector<int64_t>& tokens = tokens_.emplace_back();
    for (int64_t i = 0; i < read; ++i) {
      tokens.push_back(i < alike ? tokens_[like][i]
                                 : 1000 * static_cast<int64_t>(tokens_.size()) + i);
    }
    return Scheduler::Add({.tokens = &tokens, .num_read = read, .most_tokens = read + more});
  }
  void AddToken(size_t request) { tokens_[request].push_back(7); }
  // The next step, which is run.
  Step Run() {
    const Step step = Must(Next());
    Commit(step);
    return step;
  }

 private:
  std::deque<std::vector<int64_t>> tokens_;
};

constexpr PagedCache::Options kKeepsTexts = {.keeps_texts = true};

TEST(Scheduler, ALongPromptIsPrefilledInChunks) {
  PagedCache cache({Group()}, 10);
  Load scheduler(&cache, {.max_tokens_per_step = 8, .max_sequences = 4});
  scheduler.Add(20);
  std::vector<int64_t> chunks;
  for (int i = 0; i < 3; ++i) {
    Scheduler::Step step = scheduler.Run();
    ASSERT_EQ(step.work.size(), 1u);
    chunks.push_back(step.work[0].num_tokens);
    EXPECT_EQ(step.work[0].last, i == 2);
  }
  EXPECT_EQ(chunks, (std::vector<int64_t>{8, 8, 4}));
}

TEST(Scheduler, DecodesComeBeforePrefills) {
  PagedCache cache({Group()}, 20);
  Load scheduler(&cache, {.max_tokens_per_step = 6, .max_sequences = 4});
  const size_t first = scheduler.Add(3);
  scheduler.Run();
  scheduler.AddToken(first);
  scheduler.Add(30);
  Scheduler::Step step = scheduler.Run();
  ASSERT_EQ(step.work.size(), 2u);
  EXPECT_EQ(step.work[0].request, first);
  EXPECT_EQ(step.work[0].num_tokens, 1);
  EXPECT_EQ(step.work[1].num_tokens, 5);
}

TEST(Scheduler, ARequestThatNeverFitsIsNamed) {
  PagedCache cache({Group()}, 2);
  Load scheduler(&cache, {.max_tokens_per_step = 64, .max_sequences = 4});
  scheduler.Add(9);
  auto step = scheduler.Next();
  EXPECT_EQ(step.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(step.status().message().find("request 0 with 9 tokens"), absl::string_view::npos);
}

TEST(Scheduler, TheYoungestGivesItsBlocksBackWhenTheyRunOut) {
  PagedCache cache({Group()}, 4);
  Load scheduler(&cache, {.max_tokens_per_step = 64, .max_sequences = 4});
  const size_t old = scheduler.Add(8);
  const size_t young = scheduler.Add(8);
  ASSERT_EQ(scheduler.Run().work.size(), 2u);
  scheduler.AddToken(old);
  scheduler.AddToken(young);
  Scheduler::Step step = scheduler.Run();
  ASSERT_EQ(step.work.size(), 1u);
  EXPECT_EQ(step.work[0].request, old);
  EXPECT_EQ(scheduler.preemptions(), 1);
  scheduler.Finish(old);
  // The preempted one starts again from its first token: its prompt, then what it had written.
  step = scheduler.Run();
  ASSERT_EQ(step.work.size(), 1u);
  EXPECT_EQ(step.work[0].request, young);
  EXPECT_EQ(step.work[0].first_token, 0);
  EXPECT_EQ(step.work[0].num_tokens, 8);
  EXPECT_FALSE(step.work[0].last);
  step = scheduler.Run();
  ASSERT_EQ(step.work.size(), 1u);
  EXPECT_EQ(step.work[0].first_token, 8);
  EXPECT_EQ(step.work[0].num_tokens, 1);
  EXPECT_TRUE(step.work[0].last);
}

TEST(Scheduler, WrittenTokensThatAreComputedAgainAreRowsOfTheirOwn) {
  PagedCache cache({Group()}, 5);
  Load scheduler(&cache, {.max_tokens_per_step = 64, .max_sequences = 4});
  const size_t old = scheduler.Add(8);
  const size_t young = scheduler.Add(5);
  for (int i = 0; i < 4; ++i) {
    ASSERT_EQ(scheduler.Run().work.size(), 2u);
    scheduler.AddToken(old);
    scheduler.AddToken(young);
  }
  // All blocks of four tokens are taken: the young one waits for its third, then gives both back.
  ASSERT_EQ(scheduler.Run().work.size(), 1u);
  scheduler.AddToken(old);
  ASSERT_EQ(scheduler.Run().work.size(), 1u);
  ASSERT_EQ(scheduler.preemptions(), 1);
  scheduler.Finish(old);
  ASSERT_EQ(scheduler.Run().work[0].num_tokens, 5);
  const Scheduler::Step step = scheduler.Run();
  ASSERT_EQ(step.work.size(), 1u);
  EXPECT_EQ(step.work[0].request, young);
  EXPECT_EQ(step.work[0].num_tokens, 4);
  EXPECT_TRUE(step.work[0].by_token);
  EXPECT_TRUE(step.work[0].last);
  EXPECT_EQ(step.metadata->query_start_loc, (std::vector<int32_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(step.metadata->seq_lens, (std::vector<int32_t>{6, 7, 8, 9}));
  EXPECT_EQ(step.metadata->positions, (std::vector<int64_t>{5, 6, 7, 8}));
  EXPECT_EQ(step.metadata->logit_rows, (std::vector<int64_t>{3}));
  const StepMetadata::Group& group = step.metadata->groups[0];
  ASSERT_EQ(group.block_table.size(), 4u * group.max_blocks);
  for (size_t i = group.max_blocks; i < group.block_table.size(); ++i) {
    EXPECT_EQ(group.block_table[i], group.block_table[i % group.max_blocks]);
  }
}

TEST(Scheduler, WhatWaitsIsServedInTheOrderOfArrival) {
  PagedCache cache({Group()}, 100);
  Load scheduler(&cache, {.max_tokens_per_step = 64, .max_sequences = 2});
  for (int i = 0; i < 5; ++i) scheduler.Add(4);
  std::vector<size_t> order;
  while (!scheduler.done()) {
    const Scheduler::Step step = scheduler.Run();
    ASSERT_LE(step.work.size(), 2u);
    for (const Scheduler::Work& work : step.work) {
      order.push_back(work.request);
      scheduler.Finish(work.request);
    }
  }
  EXPECT_EQ(order, (std::vector<size_t>{0, 1, 2, 3, 4}));
}

TEST(Scheduler, AnOlderPromptThatWaitsForBlocksIsNotOvertaken) {
  PagedCache cache({Group()}, 6);
  Load scheduler(&cache, {.max_tokens_per_step = 12, .max_sequences = 4});
  const size_t first = scheduler.Add(4);
  const size_t large = scheduler.Add(20);
  ASSERT_EQ(scheduler.Run().work.size(), 2u);  // 4 and 8 of 20: three of six blocks
  scheduler.AddToken(first);
  scheduler.Add(4);
  // One block for the decode; the next 11 tokens of the large prompt need three, two are left.
  Scheduler::Step step = scheduler.Run();
  ASSERT_EQ(step.work.size(), 1u);
  EXPECT_EQ(step.work[0].request, first);
  scheduler.Finish(first);
  step = scheduler.Run();
  ASSERT_GE(step.work.size(), 1u);
  EXPECT_EQ(step.work[0].request, large);
  EXPECT_EQ(step.work[0].first_token, 8);
}

TEST(Scheduler, ARequestMayFinishWhileItWaits) {
  PagedCache cache({Group()}, 4);
  Load scheduler(&cache, {.max_tokens_per_step = 8, .max_sequences = 1});
  scheduler.Add(4);
  const size_t second = scheduler.Add(4);
  scheduler.Run();
  scheduler.Finish(second);
  scheduler.Finish(0);
  EXPECT_TRUE(scheduler.done());
  EXPECT_TRUE(scheduler.Run().work.empty());
  EXPECT_EQ(cache.pool().num_held(), 0);
}

CacheGroup Window() {
  CacheGroup group = Group();
  group.name = "window";
  group.sliding_window = 6;
  return group;
}

TEST(Scheduler, AnEqualBeginningIsComputedOnce) {
  PagedCache cache({Group(), Window()}, 40, kKeepsTexts);
  Load scheduler(&cache, {.max_tokens_per_step = 64, .max_sequences = 4});
  const size_t first = scheduler.Add(20);
  const size_t second = scheduler.Add(18, 0, first, 14);
  const size_t other = scheduler.Add(5);
  // The second waits for the first, the other one is not held up.
  Scheduler::Step step = scheduler.Run();
  ASSERT_EQ(step.work.size(), 2u);
  EXPECT_EQ(step.work[0].request, first);
  EXPECT_EQ(step.work[0].num_tokens, 20);
  EXPECT_EQ(step.work[1].request, other);
  scheduler.Finish(other);
  scheduler.AddToken(first);
  step = scheduler.Run();
  ASSERT_EQ(step.work.size(), 2u);
  EXPECT_EQ(step.work[1].request, second);
  EXPECT_EQ(step.work[1].first_token, 12);  // three whole blocks of 14 tokens
  EXPECT_EQ(step.work[1].num_tokens, 6);
  EXPECT_TRUE(step.work[1].last);
  EXPECT_EQ(scheduler.shared_tokens(), 12);
  EXPECT_EQ(scheduler.shared_tokens(second), 12);
  // Blocks of all rows, and of windows.
  EXPECT_EQ(cache.pool().num_held(), 3 + 3 + 2 + 6);
  EXPECT_TRUE(cache.CheckAccounts().ok()) << cache.CheckAccounts();
}

TEST(Scheduler, ABeginningIsThereWhenItsRequestIsDone) {
  PagedCache cache({Group(), Window()}, 40, kKeepsTexts);
  Load scheduler(&cache, {.max_tokens_per_step = 64, .max_sequences = 4});
  const size_t first = scheduler.Add(20);
  scheduler.Run();
  scheduler.Finish(first);
  EXPECT_EQ(cache.pool().num_held(), 0);
  scheduler.Add(20, 0, first, 20);
  // Two tokens of a prompt, or more, are computed; they are not those of a block here.
  EXPECT_EQ(scheduler.Run().work[0].first_token, 16);
  const size_t longer = scheduler.Add(30, 0, first, 20);
  // Windows have nothing at 20: who passes there keeps it for the next one.
  EXPECT_EQ(scheduler.Run().work[0].first_token, 16);
  scheduler.Finish(longer);
  scheduler.Add(40, 0, first, 20);
  EXPECT_EQ(scheduler.Run().work[0].first_token, 20);
}

TEST(Scheduler, NothingIsTakenOfATextThatIsNotToBeShared) {
  PagedCache cache({Group()}, 20, kKeepsTexts);
  Scheduler scheduler(&cache, {.max_tokens_per_step = 64, .max_sequences = 4});
  const std::vector<int64_t> tokens(20, 3);
  for (const auto& [salt, shares, shared] : std::vector<std::tuple<std::string, bool, int64_t>>{
           {"", true, 0}, {"", false, 0}, {"a", true, 0}, {"", true, 16}, {"a", true, 16}}) {
    const size_t request = scheduler.Add(
        {.tokens = &tokens, .num_read = 20, .most_tokens = 20, .salt = salt, .shares = shares});
    scheduler.Commit(Must(scheduler.Next()));
    EXPECT_EQ(scheduler.shared_tokens(request), shared) << salt << shares;
    scheduler.Finish(request);
  }
}

TEST(Scheduler, BeginningsOfBeginningsWaitInTurn) {
  PagedCache cache({Group()}, 40, kKeepsTexts);
  Load scheduler(&cache, {.max_tokens_per_step = 64, .max_sequences = 4});
  const size_t a = scheduler.Add(20);
  const size_t b = scheduler.Add(30, 0, a, 8);
  scheduler.Add(28, 0, b, 24);
  std::vector<int64_t> first_tokens(3, -1);
  while (!scheduler.done()) {
    const Scheduler::Step step = scheduler.Run();
    ASSERT_FALSE(step.work.empty());
    for (const Scheduler::Work& work : step.work) {
      if (first_tokens[work.request] < 0) first_tokens[work.request] = work.first_token;
      if (work.last) scheduler.Finish(work.request);
    }
  }
  EXPECT_EQ(first_tokens, (std::vector<int64_t>{0, 8, 24}));
  EXPECT_EQ(scheduler.shared_tokens(), 32);
  EXPECT_EQ(cache.pool().num_held(), 0);
}

// What one has that gave its blocks back is found again while nobody needs the room.
TEST(Scheduler, APreemptedRequestLosesWhatIsBehindItsLastWholeBlock) {
  PagedCache cache({Group()}, 6, kKeepsTexts);
  Load scheduler(&cache, {.max_tokens_per_step = 64, .max_sequences = 4});
  const size_t old = scheduler.Add(11);
  const size_t young = scheduler.Add(9);
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(scheduler.Run().work.size(), 2u);
    scheduler.AddToken(old);
    scheduler.AddToken(young);
  }
  ASSERT_EQ(scheduler.Run().work.size(), 1u);  // old has 13 tokens, and the young one's third block
  EXPECT_EQ(scheduler.preemptions(), 1);
  scheduler.Finish(old);
  const Scheduler::Step step = scheduler.Run();
  EXPECT_EQ(step.work[0].request, young);
  EXPECT_EQ(step.work[0].first_token, 0 + 4);  // eight were whole, four of them were needed
  EXPECT_TRUE(cache.CheckAccounts().ok()) << cache.CheckAccounts();
}

TEST(Scheduler, ARequestStartsWhenItsPromptFitsBesideWhatOthersMayNeed) {
  PagedCache cache({Group()}, 10);
  Load scheduler(&cache, {.max_tokens_per_step = 64, .max_sequences = 4, .growth_tokens = 8});
  const size_t first = scheduler.Add(8, /*more=*/20);
  const size_t second = scheduler.Add(28);  // seven blocks: with two and two soon, one too many
  ASSERT_EQ(scheduler.Run().work.size(), 1u);
  EXPECT_EQ(scheduler.num_waiting(), 1u);
  scheduler.Finish(first);
  EXPECT_EQ(scheduler.Run().work[0].request, second);
}

TEST(Scheduler, AShortPromptDoesNotWaitForALongOne) {
  PagedCache cache({Group()}, 100);
  Load scheduler(&cache, {.max_tokens_per_step = 32, .max_sequences = 4});
  const size_t large = scheduler.Add(300);
  scheduler.Run();
  const size_t small = scheduler.Add(10);
  const Scheduler::Step step = scheduler.Run();
  ASSERT_EQ(step.work.size(), 2u);
  EXPECT_EQ(step.work[0].request, large);
  EXPECT_EQ(step.work[0].num_tokens, 22);
  EXPECT_EQ(step.work[1].request, small);
  EXPECT_TRUE(step.work[1].last);
}

TEST(Scheduler, AStepThatWasNotRunIsPlannedAgain) {
  PagedCache cache({Group(), Window()}, 40, kKeepsTexts);
  Load scheduler(&cache, {.max_tokens_per_step = 16, .max_sequences = 4});
  scheduler.Add(30);
  scheduler.Run();
  const int64_t held = cache.pool().num_held();
  const Scheduler::Step failed = Must(scheduler.Next());
  const std::vector<int64_t> positions = failed.metadata->positions;
  scheduler.RollBack();
  EXPECT_EQ(cache.pool().num_held(), held);
  const Scheduler::Step again = scheduler.Run();
  EXPECT_EQ(again.work[0].first_token, failed.work[0].first_token);
  EXPECT_EQ(again.metadata->positions, positions);
  EXPECT_TRUE(cache.CheckAccounts().ok()) << cache.CheckAccounts();
}

TEST(Scheduler, LeavesNothingBehindWhenItGoes) {
  PagedCache cache({Group()}, 8);
  {
    Load scheduler(&cache, {.max_tokens_per_step = 8, .max_sequences = 2});
    scheduler.Add(8);
    scheduler.Run();
    EXPECT_GT(cache.pool().num_held(), 0);
  }
  EXPECT_EQ(cache.pool().num_held(), 0);
}

// Pieces of prompts have 2 tokens or more and leave none or 2 or more, in any load; written tokens are
// never computed but as rows of their own. Something is computed of the oldest request in every step.
TEST(SchedulerPieces, RandomLoads) {
  std::mt19937 random(47);
  int64_t pieces = 0, again = 0, shared = 0;
  for (int round = 0; round < 100000; ++round) {
    PagedCache cache({Group(), Window()}, static_cast<int64_t>(14 + random() % 16), kKeepsTexts);
    const auto budget = static_cast<int64_t>(4 + random() % 16);
    Load scheduler(&cache, {.max_tokens_per_step = budget,
                            .max_sequences = 1 + static_cast<int64_t>(random() % (budget / 2))});
    const size_t count = 1 + random() % 4;
    std::vector<int64_t> read(count), known(count), left(count), computed(count);
    for (size_t i = 0; i < count; ++i) {
      read[i] = known[i] = 1 + random() % 24;
      left[i] = random() % 6;
      const size_t other = i == 0 ? 0 : random() % i;
      const auto alike = i == 0 ? 0 : static_cast<int64_t>(random() % (read[other] + 1));
      scheduler.Add(read[i], random() % 2 == 0 ? left[i] : 0, other, alike);
    }
    for (int steps = 0; !scheduler.done(); ++steps) {
      ASSERT_LT(steps, 1000);
      const Scheduler::Step step = scheduler.Run();
      ASSERT_FALSE(step.work.empty());
      int64_t tokens = 0;
      for (const Scheduler::Work& work : step.work) {
        tokens += work.num_tokens;
        const int64_t prompt = read[work.request], end = work.first_token + work.num_tokens;
        ASSERT_EQ(work.by_token, work.first_token >= prompt);
        if (!work.by_token) {
          ASSERT_LE(end, prompt);
          ASSERT_TRUE(work.num_tokens >= 2 || prompt == 1) << work.num_tokens << " of " << prompt;
          ASSERT_NE(prompt - end, 1) << work.first_token << " to " << end << " of " << prompt;
          pieces += end < prompt ? 1 : 0;
          shared += work.first_token > computed[work.request] ? 1 : 0;
        }
        again += work.by_token && work.num_tokens > 1 ? 1 : 0;
        computed[work.request] = end;
        ASSERT_EQ(work.last, end == known[work.request]);
        if (!work.last) continue;
        if (left[work.request]-- == 0) {
          scheduler.Finish(work.request);
        } else {
          scheduler.AddToken(work.request);
          ++known[work.request];
        }
      }
      ASSERT_LE(tokens, budget);
    }
    ASSERT_EQ(cache.pool().num_held(), 0);
    if (round % 100 == 0) {
      ASSERT_TRUE(cache.CheckAccounts().ok()) << cache.CheckAccounts();
    }
  }
  EXPECT_GT(pieces, 10000);
  EXPECT_GT(again, 100);
  EXPECT_GT(shared, 1000);
}

// Whatever shares with what, in caches that are too small for all: every token of a request is
// computed or shared, in order, and nothing is left.
TEST(Scheduler, RandomBeginningsEndAll) {
  std::mt19937 random(31);
  int64_t shared = 0, preemptions = 0;
  for (int round = 0; round < 2000; ++round) {
    PagedCache cache({Group(), Window()}, static_cast<int64_t>(14 + random() % 16), kKeepsTexts);
    const int64_t sequences = 1 + static_cast<int64_t>(random() % 4);
    Load scheduler(&cache, {.max_tokens_per_step = std::max<int64_t>(4, 2 * sequences) +
                                                   static_cast<int64_t>(random() % 20),
                            .max_sequences = sequences});
    std::vector<int64_t> tokens, read, left;
    for (size_t i = 0; i < 8; ++i) {
      tokens.push_back(1 + random() % 20);
      left.push_back(random() % 5);
      const size_t other = i == 0 ? 0 : random() % i;
      const int64_t alike = i == 0 ? 0 : std::min(read[other], tokens[i]);
      scheduler.Add(tokens[i], 0, other, alike);
      read.push_back(tokens[i]);
    }
    int steps = 0;
    while (!scheduler.done()) {
      ASSERT_LT(++steps, 2000);
      const Scheduler::Step step = scheduler.Run();
      ASSERT_FALSE(step.work.empty());
      for (const Scheduler::Work& work : step.work) {
        ASSERT_LE(work.first_token + work.num_tokens, tokens[work.request]);
        if (!work.last) continue;
        if (left[work.request]-- == 0) {
          scheduler.Finish(work.request);
        } else {
          scheduler.AddToken(work.request);
          ++tokens[work.request];
        }
      }
    }
    EXPECT_EQ(cache.pool().num_held(), 0);
    shared += scheduler.shared_tokens();
    preemptions += scheduler.preemptions();
  }
  EXPECT_GT(shared, 100);
  EXPECT_GT(preemptions, 10);
}

// In every step: the budget and the number of sequences hold, decodes stand before prefills, each
// request is there once, and the oldest one that runs is never preempted.
TEST(Scheduler, RandomLoadsKeepTheLimits) {
  std::mt19937 random(29);
  int64_t preemptions = 0;
  for (int round = 0; round < 200; ++round) {
    const auto budget = static_cast<int64_t>(4 + random() % 16);
    const auto sequences = static_cast<int64_t>(1 + random() % (budget / 2));
    PagedCache cache({Group()}, static_cast<int64_t>(7 + random() % 6));
    Load scheduler(&cache, {.max_tokens_per_step = budget, .max_sequences = sequences});
    const size_t count = 2 + random() % 6;
    std::vector<int64_t> known(count), goal(count), computed(count, 0);
    for (size_t i = 0; i < count; ++i) {
      known[i] = 1 + random() % 14;
      goal[i] = known[i] + random() % 12;
      scheduler.Add(known[i]);
    }
    size_t oldest = 0;
    bool oldest_runs = false;
    for (int steps = 0; !scheduler.done(); ++steps) {
      ASSERT_LT(steps, 5000);
      const auto step = scheduler.Run();
      int64_t tokens = 0;
      bool prefill = false;
      std::set<size_t> seen;
      for (const Scheduler::Work& work : step.work) {
        ASSERT_GT(work.num_tokens, 0);
        ASSERT_TRUE(seen.insert(work.request).second);
        tokens += work.num_tokens;
        const bool decodes = work.by_token && work.num_tokens == 1 && work.last;
        ASSERT_FALSE(decodes && prefill);
        prefill = prefill || !decodes;
        if (work.request == oldest) {
          ASSERT_TRUE(!oldest_runs || work.first_token == computed[oldest]);
          oldest_runs = true;
        }
        computed[work.request] = work.first_token + work.num_tokens;
        if (!work.last) continue;
        if (known[work.request] == goal[work.request]) {
          scheduler.Finish(work.request);
          known[work.request] = -1;
        } else {
          ++known[work.request];
          scheduler.AddToken(work.request);
        }
      }
      ASSERT_LE(tokens, budget);
      ASSERT_LE(static_cast<int64_t>(step.work.size()), sequences);
      ASSERT_EQ(step.metadata->query_start_loc.back(), tokens);
      for (; oldest < count && known[oldest] < 0; ++oldest) oldest_runs = false;
    }
    preemptions += scheduler.preemptions();
    EXPECT_EQ(cache.pool().num_held(), 0);
  }
  EXPECT_GT(preemptions, 50);
}

// Requests with random lengths over pools of random size: each token is computed in order, and
// nothing is left allocated.
TEST(Scheduler, RandomLoadsRunEveryTokenInOrderAndLeaveNothing) {
  std::mt19937 random(11);
  for (int round = 0; round < 200; ++round) {
    PagedCache cache({Group()}, static_cast<int64_t>(8 + random() % 20));
    const auto budget = static_cast<int64_t>(4 + random() % 20);
    Load scheduler(&cache, {.max_tokens_per_step = budget,
                            .max_sequences = static_cast<int64_t>(1 + random() % (budget / 2))});
    const size_t count = 1 + random() % 6;
    std::vector<int64_t> known(count), goal(count), computed(count, 0);
    for (size_t i = 0; i < count; ++i) {
      known[i] = 1 + random() % 12;
      goal[i] = known[i] + random() % 12;
      scheduler.Add(known[i]);
    }
    for (int steps = 0; !scheduler.done(); ++steps) {
      ASSERT_LT(steps, 5000);
      const auto step = scheduler.Run();
      for (const Scheduler::Work& work : step.work) {
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
    EXPECT_EQ(cache.pool().num_held(), 0);
  }
}

}  // namespace
}  // namespace pagefuse
