// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/runtime/paged_cache.h"

#include <algorithm>
#include <limits>
#include <map>
#include <random>
#include <set>

#include <gtest/gtest.h>

namespace pagefuse {
namespace {

CacheGroup Full() {
  CacheGroup group;
  group.name = "full";
  group.block_size = 4;
  return group;
}

CacheGroup Window(int64_t window) {
  CacheGroup group = Full();
  group.name = "window";
  group.kind = CacheKind::kWindow;
  group.sliding_window = window;
  return group;
}

TEST(PagedCache, SlotsFollowTheBlocksOfTheSequence) {
  PagedCache cache({Full()}, 8);
  const SequenceId a = cache.AddSequence();
  const SequenceId b = cache.AddSequence();
  StepMetadata step = *cache.Append({{a, 5}, {b, 2}});
  EXPECT_EQ(step.positions, (std::vector<int64_t>{0, 1, 2, 3, 4, 0, 1}));
  EXPECT_EQ(step.query_start_loc, (std::vector<int32_t>{0, 5, 7}));
  EXPECT_EQ(step.seq_lens, (std::vector<int32_t>{5, 2}));
  EXPECT_EQ(step.groups[0].block_table, (std::vector<int32_t>{0, 1, 2, -1}));
  EXPECT_EQ(step.groups[0].slot_mapping, (std::vector<int64_t>{0, 1, 2, 3, 4, 8, 9}));
}

TEST(PagedCache, AWindowKeepsOnlyTheBlocksThatTheNextTokenSees) {
  PagedCache cache({Window(6)}, 8);
  const SequenceId a = cache.AddSequence();
  ASSERT_TRUE(cache.Append({{a, 16}}).ok());
  // The next token, at 16, sees 11..16: blocks 2 (8..11) and 3 stay, 0 and 1 are free.
  EXPECT_EQ(cache.pool().num_used(), 2);
  StepMetadata step = *cache.Append({{a, 1}});
  EXPECT_EQ(step.groups[0].max_blocks, 8);  // 5, as a power of two
  EXPECT_EQ(step.groups[0].block_table[2], 2);
  EXPECT_EQ(step.groups[0].block_table[3], 3);
}

TEST(PagedCache, AFullPoolRefusesAndChangesNothing) {
  PagedCache cache({Full()}, 2);
  const SequenceId a = cache.AddSequence();
  ASSERT_TRUE(cache.Append({{a, 3}}).ok());
  EXPECT_EQ(cache.Append({{a, 6}}).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(cache.Length(a), 3);
  EXPECT_EQ(cache.pool().num_used(), 1);
  EXPECT_TRUE(cache.Append({{a, 5}}).ok());
}

TEST(PagedCache, UnknownOrRepeatedSequencesAreRefused) {
  PagedCache cache({Full()}, 2);
  const SequenceId a = cache.AddSequence();
  EXPECT_EQ(cache.Append({{a + 1, 1}}).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(cache.Append({{a, 1}, {a, 1}}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(cache.Append({{a, -1}}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(cache.pool().num_held(), 0);
}

TEST(PagedCache, AForkWritesToACopyOfTheSharedBlock) {
  PagedCache cache({Full()}, 4);
  const SequenceId parent = cache.AddSequence();
  ASSERT_TRUE(cache.Append({{parent, 6}}).ok());
  const SequenceId child = *cache.Fork(parent);
  EXPECT_EQ(cache.pool().num_held(), 2);
  StepMetadata step = *cache.Append({{child, 1}});
  std::vector<PagedCache::Copy> copies = cache.TakeCopies();
  ASSERT_EQ(copies.size(), 1u);
  EXPECT_EQ(copies[0].from, 1);
  EXPECT_EQ(copies[0].to, 2);
  EXPECT_EQ(step.groups[0].block_table, (std::vector<int32_t>{0, 2}));
  // The parent owns its last block alone again.
  ASSERT_TRUE(cache.Append({{parent, 1}}).ok());
  EXPECT_TRUE(cache.TakeCopies().empty());
  cache.Remove(parent);
  cache.Remove(child);
  EXPECT_EQ(cache.pool().num_held(), 0);
}

TEST(PagedCache, AWindowHoldsNoMoreBlocksThanItNeeds) {
  for (int64_t window : {1, 3, 4, 5, 9}) {
    PagedCache cache({Window(window)}, 6);
    const SequenceId a = cache.AddSequence();
    for (int64_t length = 1; length <= 60; ++length) {
      ASSERT_TRUE(cache.Append({{a, 1}}).ok());
      // The next token, at `length`, sees the last window - 1 that are there.
      const int64_t first = std::max<int64_t>(0, length - window + 1);
      const int64_t visible = (length + 3) / 4 - first / 4;
      EXPECT_EQ(cache.pool().num_used(), visible) << "window " << window << ", " << length;
    }
  }
}

TEST(PagedCache, WhatAGroupGivesBackAnotherOneTakes) {
  PagedCache cache({Full(), Window(4)}, 6);
  const SequenceId a = cache.AddSequence();
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(cache.Append({{a, 4}}).ok());
  // Of 16 tokens the full group has 4 blocks; the window has let all but the last one go.
  EXPECT_EQ(cache.pool().num_free(), 1);
  // Its next block and that of the window are two.
  EXPECT_FALSE(cache.CanAppend({{a, 1}}));
  const SequenceId b = cache.AddSequence();
  EXPECT_EQ(cache.Append({{b, 1}}).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(cache.pool().num_used(), 5);
}

TEST(PagedCache, AStepWithoutTokensIsEmpty) {
  PagedCache cache({Full()}, 2);
  const SequenceId a = cache.AddSequence();
  const StepMetadata none = *cache.Append({});
  EXPECT_EQ(none.query_start_loc, std::vector<int32_t>{0});
  const StepMetadata step = *cache.Append({{a, 0}});
  EXPECT_EQ(step.query_start_loc, (std::vector<int32_t>{0, 0}));
  EXPECT_EQ(step.groups[0].max_blocks, 0);
  EXPECT_EQ(cache.pool().num_held(), 0);
}

TEST(PagedCache, HugeCountsAreRefused) {
  PagedCache cache({Full(), Window(3)}, 4);
  const SequenceId a = cache.AddSequence();
  ASSERT_TRUE(cache.Append({{a, 3}}).ok());
  const int64_t huge = std::numeric_limits<int64_t>::max();
  EXPECT_FALSE(cache.CanAppend({{a, huge}}));
  EXPECT_EQ(cache.Append({{a, huge}}).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(cache.Length(a), 3);
}

TEST(PagedCache, TheLastSharerOfABlockNeedsNoCopy) {
  PagedCache cache({Full()}, 2);
  const SequenceId parent = cache.AddSequence();
  ASSERT_TRUE(cache.Append({{parent, 2}}).ok());
  const SequenceId child = *cache.Fork(parent);
  // Both write to the shared block; one free block is enough.
  ASSERT_TRUE(cache.CanAppend({{parent, 1}, {child, 1}}));
  const StepMetadata step = *cache.Append({{parent, 1}, {child, 1}});
  EXPECT_EQ(cache.TakeCopies().size(), 1u);
  EXPECT_NE(step.groups[0].block_table[0], step.groups[0].block_table[1]);
  EXPECT_EQ(cache.Fork(child + 1).status().code(), absl::StatusCode::kNotFound);
}

// A model of the cache that remembers every (sequence, position) and the slot that it was given.
class NaiveCache {
 public:
  void Write(SequenceId sequence, int64_t position, int64_t slot) {
    contents_[slot] = {sequence, position};
  }
  bool Holds(SequenceId sequence, int64_t position, int64_t slot) const {
    auto it = contents_.find(slot);
    return it != contents_.end() && it->second == std::make_pair(sequence, position);
  }

 private:
  std::map<int64_t, std::pair<SequenceId, int64_t>> contents_;
};

TEST(PagedCache, RandomCallsNeverLoseAVisibleTokenOrLeakABlock) {
  std::mt19937 random(7);
  PagedCache cache({Full(), Window(10)}, 70);
  std::vector<NaiveCache> naive(2);
  std::vector<SequenceId> live;
  for (int call = 0; call < 4000; ++call) {
    if (live.empty() || random() % 8 == 0) live.push_back(cache.AddSequence());
    if (random() % 12 == 0) {
      const size_t victim = random() % live.size();
      cache.Remove(live[victim]);
      live.erase(live.begin() + victim);
      continue;
    }
    std::vector<StepEntry> entries;
    std::set<SequenceId> chosen;
    for (int i = 0; i < 3; ++i) {
      const SequenceId sequence = live[random() % live.size()];
      if (chosen.insert(sequence).second)
        entries.push_back({sequence, static_cast<int64_t>(random() % 7)});
    }
    auto step = cache.Append(entries);
    if (!step.ok()) {
      ASSERT_EQ(step.status().code(), absl::StatusCode::kResourceExhausted);
      continue;
    }
    for (size_t g = 0; g < 2; ++g) {
      const StepMetadata::Group& group = step->groups[g];
      size_t token = 0;
      for (size_t s = 0; s < entries.size(); ++s) {
        for (int64_t i = 0; i < entries[s].num_tokens; ++i, ++token) {
          naive[g].Write(entries[s].sequence, step->positions[token], group.slot_mapping[token]);
        }
      }
      // Every key that the step's first token (or the newest one, if there is none) may see is
      // where the table says.
      for (size_t s = 0; s < entries.size(); ++s) {
        if (entries[s].num_tokens == 0) continue;
        const int64_t length = step->seq_lens[s];
        const int64_t first = length - entries[s].num_tokens;
        const int64_t window = cache.groups()[g].sliding_window;
        for (int64_t p = window ? std::max<int64_t>(0, first - window + 1) : 0; p < length; ++p) {
          const int64_t slot = group.block_table[s * group.max_blocks + p / 4] * 4 + p % 4;
          ASSERT_TRUE(naive[g].Holds(entries[s].sequence, p, slot)) << "position " << p;
        }
      }
    }
  }
  for (SequenceId sequence : live) cache.Remove(sequence);
  EXPECT_EQ(cache.pool().num_held(), 0);
}

// Slots with the tokens that were written to them, copies of blocks included.
class NaiveSlots {
 public:
  void CopyBlock(int64_t from, int64_t to, int64_t block_size) {
    for (int64_t i = 0; i < block_size; ++i)
      tokens_[to * block_size + i] = At(from * block_size + i);
  }
  void Write(int64_t slot, int64_t token) { tokens_[slot] = token; }
  int64_t At(int64_t slot) const {
    auto it = tokens_.find(slot);
    return it == tokens_.end() ? -1 : it->second;
  }

 private:
  std::map<int64_t, int64_t> tokens_;
};

TEST(PagedCache, RandomForksReadTheTokensOfTheirOwnHistory) {
  std::mt19937 random(23);
  PagedCache cache({Full(), Window(6)}, 54);
  std::vector<NaiveSlots> slots(2);
  std::map<SequenceId, std::vector<int64_t>> histories;
  int64_t next_token = 0;
  int appended = 0;
  for (int call = 0; call < 4000; ++call) {
    if (histories.empty() || random() % 9 == 0) histories[cache.AddSequence()] = {};
    auto any = histories.begin();
    std::advance(any, random() % histories.size());
    if (random() % 6 == 0) {
      const std::vector<int64_t> history = any->second;
      histories[*cache.Fork(any->first)] = history;
      continue;
    }
    constexpr size_t kMost = 6;
    if (histories.size() > kMost || random() % 6 == 0) {
      cache.Remove(any->first);
      histories.erase(any);
      continue;
    }
    std::vector<StepEntry> entries;
    for (const auto& [sequence, history] : histories) {
      if (random() % 2 == 0) entries.push_back({sequence, static_cast<int64_t>(random() % 4)});
    }
    const bool fits = cache.CanAppend(entries);
    const absl::StatusOr<StepMetadata> step = cache.Append(entries);
    ASSERT_EQ(fits, step.ok());
    if (!fits) continue;
    ++appended;
    for (const PagedCache::Copy& copy : cache.TakeCopies()) {
      slots[copy.group].CopyBlock(copy.from, copy.to, 4);
    }
    size_t token = 0;
    for (const StepEntry& entry : entries) {
      for (int64_t i = 0; i < entry.num_tokens; ++i, ++token) {
        for (size_t g = 0; g < 2; ++g) {
          slots[g].Write(step->groups[g].slot_mapping[token], next_token);
        }
        histories[entry.sequence].push_back(next_token++);
      }
    }
    for (size_t g = 0; g < 2; ++g) {
      const StepMetadata::Group& group = step->groups[g];
      const int64_t window = cache.groups()[g].sliding_window;
      for (size_t s = 0; s < entries.size(); ++s) {
        const std::vector<int64_t>& history = histories[entries[s].sequence];
        const auto length = static_cast<int64_t>(history.size());
        const int64_t first = length - entries[s].num_tokens;
        for (int64_t p = window ? std::max<int64_t>(0, first - window + 1) : 0; p < length; ++p) {
          const int64_t slot = group.block_table[s * group.max_blocks + p / 4] * 4 + p % 4;
          ASSERT_EQ(slots[g].At(slot), history[p]) << "group " << g << ", position " << p;
        }
      }
    }
  }
  EXPECT_GT(appended, 500);
  for (const auto& [sequence, history] : histories) cache.Remove(sequence);
  EXPECT_EQ(cache.pool().num_held(), 0);
}

}  // namespace
}  // namespace pagefuse
