#include "pagefuse/runtime/paged_cache.h"

#include <map>
#include <random>
#include <set>

#include <gtest/gtest.h>

namespace pagefuse {
namespace {

CacheGroup Full(int64_t blocks) {
  CacheGroup group;
  group.name = "full";
  group.block_size = 4;
  group.num_blocks = blocks;
  return group;
}

CacheGroup Window(int64_t window, int64_t blocks) {
  CacheGroup group = Full(blocks);
  group.name = "window";
  group.sliding_window = window;
  return group;
}

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

TEST(PagedCache, SlotsFollowTheBlocksOfTheSequence) {
  PagedCache cache({Full(8)});
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
  PagedCache cache({Window(6, 8)});
  const SequenceId a = cache.AddSequence();
  ASSERT_TRUE(cache.Append({{a, 16}}).ok());
  // The next token, at 16, sees 11..16: blocks 2 (8..11) and 3 stay, 0 and 1 are free.
  EXPECT_EQ(cache.pool(0).num_used(), 2);
  StepMetadata step = *cache.Append({{a, 1}});
  EXPECT_EQ(step.groups[0].max_blocks, 5);
  EXPECT_EQ(step.groups[0].block_table[2], 2);
  EXPECT_EQ(step.groups[0].block_table[3], 3);
}

TEST(PagedCache, AFullPoolRefusesAndChangesNothing) {
  PagedCache cache({Full(2)});
  const SequenceId a = cache.AddSequence();
  ASSERT_TRUE(cache.Append({{a, 3}}).ok());
  EXPECT_EQ(cache.Append({{a, 6}}).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(cache.Length(a), 3);
  EXPECT_EQ(cache.pool(0).num_used(), 1);
  EXPECT_TRUE(cache.Append({{a, 5}}).ok());
}

TEST(PagedCache, UnknownOrRepeatedSequencesAreRefused) {
  PagedCache cache({Full(2)});
  const SequenceId a = cache.AddSequence();
  EXPECT_EQ(cache.Append({{a + 1, 1}}).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(cache.Append({{a, 1}, {a, 1}}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(cache.Append({{a, -1}}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(cache.blocks_in_use(), 0);
}

TEST(PagedCache, AForkWritesToACopyOfTheSharedBlock) {
  PagedCache cache({Full(4)});
  const SequenceId parent = cache.AddSequence();
  ASSERT_TRUE(cache.Append({{parent, 6}}).ok());
  const SequenceId child = *cache.Fork(parent);
  EXPECT_EQ(cache.blocks_in_use(), 2);
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
  EXPECT_EQ(cache.blocks_in_use(), 0);
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
  PagedCache cache({Full(40), Window(10, 30)});
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
  EXPECT_EQ(cache.blocks_in_use(), 0);
}

}  // namespace
}  // namespace pagefuse
