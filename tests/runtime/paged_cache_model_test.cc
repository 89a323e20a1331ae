// SPDX-License-Identifier: Apache-2.0
// The paged cache against a naive one over random calls: groups of every kind, appends in chunks,
// forks, returns to shorter lengths, removals. The naive cache goes row by row and counts holders
// of blocks; a memory of rows shows whether tables and slots lead to what was written.
//
// PAGEFUSE_CACHE_CALLS: how many calls, 100,000 by default.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "pagefuse/runtime/paged_cache.h"

namespace pagefuse {
namespace {

// The rows that tokens from `position` on read of those before it start here.
int64_t FirstRead(const CacheGroup& group, int64_t position) {
  if (group.kind == CacheKind::kFull || group.kind == CacheKind::kCompressed) return 0;
  int64_t token = position;
  // Only tokens that close a window read a state.
  while (group.kind == CacheKind::kState && (token + 1) % group.ratio != 0) ++token;
  return std::max<int64_t>(0, token - group.sliding_window + 1);
}

// One group of all sequences. A block is a number that is never used again.
class NaiveGroup {
 public:
  NaiveGroup(const CacheGroup& group, int64_t keep) : group_(group), keep_(keep) {}

  void Append(SequenceId sequence, int64_t length, int64_t tokens) {
    for (int64_t token = length; token < length + tokens; ++token) {
      if ((token + 1) % group_.tokens_per_row() != 0) continue;
      int& block = blocks_[sequence][token / group_.tokens_per_row() / group_.block_size];
      if (block != 0 && holders_[block] == 1) continue;
      if (block != 0) --holders_[block];
      block = next_++;
      holders_[block] = 1;
    }
  }
  void Forget(SequenceId sequence, int64_t length) {
    if (group_.sliding_window == 0) return;
    // The next token is this one, or comes after a return.
    const int64_t next = std::max<int64_t>(0, length - keep_);
    DropIf(sequence, [&](int64_t block) {
      return (block + 1) * group_.block_size <= next - group_.sliding_window + 1;
    });
  }
  void Return(SequenceId sequence, int64_t length) {
    const int64_t rows = length / group_.tokens_per_row();
    DropIf(sequence, [&](int64_t block) { return block * group_.block_size >= rows; });
  }
  void Remove(SequenceId sequence) {
    DropIf(sequence, [](int64_t) { return true; });
    blocks_.erase(sequence);
  }
  void Fork(SequenceId parent, SequenceId child) {
    blocks_[child] = blocks_[parent];
    for (const auto& [index, block] : blocks_[child]) ++holders_[block];
  }
  bool Holds(SequenceId sequence, int64_t length) {
    const int64_t rows = length / group_.tokens_per_row();
    for (int64_t row = FirstRead(group_, length); row < rows; ++row) {
      if (!blocks_[sequence].contains(row / group_.block_size)) return false;
    }
    return true;
  }
  int64_t used() const { return static_cast<int64_t>(holders_.size()); }

 private:
  template <class Condition>
  void DropIf(SequenceId sequence, const Condition& condition) {
    std::erase_if(blocks_[sequence], [&](const auto& item) {
      if (!condition(item.first)) return false;
      if (--holders_[item.second] == 0) holders_.erase(item.second);
      return true;
    });
  }

  CacheGroup group_;
  int64_t keep_;
  std::map<SequenceId, std::map<int64_t, int>> blocks_;  // by their index in the sequence
  std::map<int, int> holders_;
  int next_ = 1;
};

// The cache under test, the naive one, and what each slot holds.
class Twin {
 public:
  Twin(std::vector<CacheGroup> groups, int64_t pages, int64_t keep)
      : cache_(std::move(groups), pages, {.keep = keep}), keep_(keep) {
    for (const CacheGroup& group : cache_.groups()) {
      naive_.emplace_back(group, keep);
      memory_.emplace_back(pages * group.block_size, -1);
    }
  }

  SequenceId Add() {
    const SequenceId sequence = cache_.AddSequence();
    histories_[sequence];
    return sequence;
  }
  void Remove(SequenceId sequence) {
    cache_.Remove(sequence);
    for (NaiveGroup& group : naive_) group.Remove(sequence);
    histories_.erase(sequence);
  }
  void Fork(SequenceId parent) { Adopt(parent, *cache_.Fork(parent)); }

  // Whether a sequence can go on from a shorter length is what the naive cache says of it, and so
  // for both ways of going on.
  void TryLength(SequenceId sequence, int64_t length, bool fork) {
    bool holds = true;
    for (NaiveGroup& group : naive_) holds = holds && group.Holds(sequence, length);
    if (longest_[sequence] - length <= keep_) {
      ++within_keep_;
      ASSERT_TRUE(holds) << length << " of " << Length(sequence);
    }
    SequenceId who = sequence;
    if (fork) {
      who = *cache_.Fork(sequence);
      Adopt(sequence, who);
    }
    const absl::Status status = cache_.Return(who, length);
    ASSERT_EQ(status.ok(), holds) << length << " of " << Length(sequence);
    if (holds) Cut(who, length);
    returned_ += holds ? 1 : 0;
    refused_ += holds ? 0 : 1;
  }

  void Append(const std::vector<StepEntry>& entries) {
    const bool fits = Fits(entries);
    ASSERT_EQ(cache_.CanAppend(entries), fits);
    const auto step = cache_.Append(entries);
    ASSERT_EQ(step.ok(), fits);
    if (!fits) return;
    ++appended_;
    for (const PagedCache::Copy& copy : cache_.TakeCopies()) CopyBlock(copy);
    for (const StepEntry& entry : entries) {
      for (NaiveGroup& group : naive_) {
        group.Append(entry.sequence, Length(entry.sequence), entry.num_tokens);
      }
      for (int64_t i = 0; i < entry.num_tokens; ++i) {
        histories_[entry.sequence].push_back(next_token_++);
      }
      longest_[entry.sequence] = std::max(longest_[entry.sequence], Length(entry.sequence));
    }
    for (size_t g = 0; g < naive_.size(); ++g) CheckStep(g, entries, *step);
    for (const StepEntry& entry : entries) {
      for (NaiveGroup& group : naive_) group.Forget(entry.sequence, Length(entry.sequence));
    }
  }

  void CheckAccounting() const {
    int64_t used = 0;
    for (const NaiveGroup& group : naive_) used += group.used();
    ASSERT_EQ(cache_.pool().num_used(), used);
  }

  int64_t Length(SequenceId sequence) const {
    return static_cast<int64_t>(histories_.at(sequence).size());
  }
  std::vector<SequenceId> sequences() const {
    std::vector<SequenceId> all;
    for (const auto& [sequence, history] : histories_) all.push_back(sequence);
    return all;
  }
  int64_t pages_held() const { return cache_.pool().num_held(); }
  int64_t appended() const { return appended_; }
  int64_t within_keep() const { return within_keep_; }
  int64_t returned() const { return returned_; }
  int64_t refused() const { return refused_; }

 private:
  void Cut(SequenceId sequence, int64_t length) {
    for (NaiveGroup& group : naive_) group.Return(sequence, length);
    histories_[sequence].resize(static_cast<size_t>(length));
  }
  void Adopt(SequenceId parent, SequenceId child) {
    for (NaiveGroup& group : naive_) group.Fork(parent, child);
    histories_[child] = histories_[parent];
    longest_[child] = longest_[parent];
  }

  // What all entries take before anything is given back.
  bool Fits(const std::vector<StepEntry>& entries) const {
    int64_t used = 0;
    for (NaiveGroup after : naive_) {
      for (const StepEntry& entry : entries) {
        if (!histories_.contains(entry.sequence)) return false;
        after.Append(entry.sequence, Length(entry.sequence), entry.num_tokens);
      }
      used += after.used();
    }
    return used <= cache_.pool().num_pages();
  }

  void CopyBlock(const PagedCache::Copy& copy) {
    const int64_t size = cache_.groups()[copy.group].block_size;
    std::vector<int64_t>& memory = memory_[copy.group];
    std::copy_n(memory.begin() + copy.from * size, size, memory.begin() + copy.to * size);
  }

  // The step's rows go where its slots say; every row that one of its tokens can see is where the
  // table says.
  void CheckStep(size_t g, const std::vector<StepEntry>& entries, const StepMetadata& step) {
    const CacheGroup& group = cache_.groups()[g];
    const int64_t per_row = group.tokens_per_row();
    size_t token = 0;
    for (const StepEntry& entry : entries) {
      const int64_t first = Length(entry.sequence) - entry.num_tokens;
      for (int64_t i = first; i < first + entry.num_tokens; ++i, ++token) {
        const int64_t slot = step.groups[g].slot_mapping[token];
        ASSERT_EQ(step.positions[token], i);
        ASSERT_EQ(slot >= 0, (i + 1) % per_row == 0) << group.name;
        if (slot >= 0) memory_[g][slot] = histories_[entry.sequence][i];
      }
    }
    for (size_t s = 0; s < entries.size(); ++s) {
      const std::vector<int64_t>& history = histories_[entries[s].sequence];
      const auto length = static_cast<int64_t>(history.size());
      const int32_t* table = step.groups[g].block_table.data() + s * step.groups[g].max_blocks;
      ASSERT_EQ(step.seq_lens[s], length);
      for (int64_t row = FirstRead(group, length - entries[s].num_tokens); row < length / per_row;
           ++row) {
        const int64_t slot =
            int64_t{table[row / group.block_size]} * group.block_size + row % group.block_size;
        ASSERT_EQ(memory_[g][slot], history[(row + 1) * per_row - 1]) << group.name << ", " << row;
      }
    }
  }

  PagedCache cache_;
  int64_t keep_;
  std::vector<NaiveGroup> naive_;
  std::vector<std::vector<int64_t>> memory_;              // by group and slot: the token of the row
  std::map<SequenceId, std::vector<int64_t>> histories_;  // tokens
  std::map<SequenceId, int64_t> longest_;                 // length that it ever had
  int64_t next_token_ = 0;
  int64_t appended_ = 0, within_keep_ = 0, returned_ = 0, refused_ = 0;
};

struct Setting {
  std::string name;
  std::vector<CacheGroup> groups;
  int64_t pages = 0;
  int64_t keep = 0;
};
void PrintTo(const Setting& setting, std::ostream* os) { *os << setting.name; }

// Room for about half of what the sequences would take at their longest.
std::vector<Setting> Settings() {
  using Key = CacheGroupKey;
  const std::vector<CacheGroup> windows = {
      MakeCacheGroup(Key::Full(), 4),          MakeCacheGroup(Key::Window(1), 4),
      MakeCacheGroup(Key::Window(4), 3),       MakeCacheGroup(Key::Window(8), 4),
      MakeCacheGroup(Key::Window(128), 8),     MakeCacheGroup(Key::Compressed(1), 16),
      MakeCacheGroup(Key::Compressed(4), 3),   MakeCacheGroup(Key::Compressed(8), 2),
      MakeCacheGroup(Key::Compressed(128), 1), MakeCacheGroup(Key::State(4, true), 4),
      MakeCacheGroup(Key::State(8, false), 4), MakeCacheGroup(Key::State(128, false), 4),
      MakeCacheGroup(Key::State(4, false), 4)};
  // As a model with both kinds of compressor has them.
  const std::vector<CacheGroup> model = {
      MakeCacheGroup(Key::Window(128), 16), MakeCacheGroup(Key::State(4, true), 4),
      MakeCacheGroup(Key::State(8, false), 8), MakeCacheGroup(Key::Compressed(4), 8),
      MakeCacheGroup(Key::Compressed(8), 4)};
  return {{"all_kinds", windows, 1100, 0},
          {"all_kinds_with_returns", windows, 1100, 40},
          {"a_model", model, 300, 0},
          {"a_model_with_returns", model, 300, 64}};
}

int64_t Calls() {
  const char* calls = std::getenv("PAGEFUSE_CACHE_CALLS");
  return calls ? std::atoll(calls) : 100'000;
}

class PagedCacheModel : public ::testing::TestWithParam<Setting> {};

int64_t RandomChunk(std::mt19937& random) {
  switch (random() % 8) {
    case 0:
      return random() % 200;
    case 1:
      return 0;
    case 2:
    case 3:
      return 1 + random() % 16;
    default:
      return 1;
  }
}

// A length near the end, or a multiple of a ratio or a block, or any.
int64_t RandomLength(std::mt19937& random, int64_t length) {
  switch (random() % 3) {
    case 0:
      return std::max<int64_t>(0, length - static_cast<int64_t>(random() % 80));
    case 1:
      return length / 32 * 32;
    default:
      return static_cast<int64_t>(random() % (length + 1));
  }
}

TEST_P(PagedCacheModel, RandomCallsAgree) {
  constexpr size_t kMostSequences = 6;
  constexpr int64_t kLongest = 600;
  std::mt19937 random(11);
  Twin twin(GetParam().groups, GetParam().pages, GetParam().keep);
  for (int64_t call = 0; call < Calls() / 4 && !HasFatalFailure(); ++call) {
    SCOPED_TRACE(call);
    std::vector<SequenceId> all = twin.sequences();
    if (all.empty() || (all.size() < kMostSequences && random() % 8 == 0)) {
      all.push_back(twin.Add());
    }
    const SequenceId any = all[random() % all.size()];
    const uint32_t kind = random() % 32;
    if (twin.Length(any) > kLongest || kind == 0) {
      twin.Remove(any);
    } else if (kind == 1 && all.size() < kMostSequences) {
      twin.Fork(any);
    } else if (kind < 5) {
      const bool fork = kind == 2 && all.size() < kMostSequences;
      twin.TryLength(any, RandomLength(random, twin.Length(any)), fork);
    } else {
      std::vector<StepEntry> entries;
      for (const SequenceId sequence : all) {
        if (random() % 2 == 0) entries.push_back({sequence, RandomChunk(random)});
      }
      twin.Append(entries);
    }
    twin.CheckAccounting();
  }
  EXPECT_GT(twin.appended(), Calls() / 16);
  EXPECT_GT(twin.returned(), Calls() / 400);
  EXPECT_GT(twin.refused(), Calls() / 400);
  EXPECT_GT(twin.within_keep(), Calls() / 1600);
  for (const SequenceId sequence : twin.sequences()) twin.Remove(sequence);
  twin.CheckAccounting();
  EXPECT_EQ(twin.pages_held(), 0);
}

INSTANTIATE_TEST_SUITE_P(Settings, PagedCacheModel, ::testing::ValuesIn(Settings()),
                         [](const auto& info) { return info.param.name; });

// The rule in numbers: windows of 4 that overlap, a sliding window of 6, blocks of 4 rows.
TEST(PagedCacheReturn, NeedsTheWindowAndTheStateOfTheWindowBefore) {
  std::vector<CacheGroup> groups = {MakeCacheGroup(CacheGroupKey::Window(6), 4),
                                    MakeCacheGroup(CacheGroupKey::State(4, true), 4),
                                    MakeCacheGroup(CacheGroupKey::Compressed(4), 4)};
  for (const int64_t keep : {0, 16}) {
    PagedCache cache(groups, 27, {.keep = keep});
    const SequenceId a = cache.AddSequence();
    for (int i = 0; i < 32; ++i) ASSERT_TRUE(cache.Append({{a, 1}}).ok());
    EXPECT_TRUE(cache.Return(a, 32).ok());
    EXPECT_FALSE(cache.Return(a, 8).ok());
    EXPECT_FALSE(cache.Return(a, 33).ok());
    EXPECT_FALSE(cache.Return(a + 1, 0).ok());
    EXPECT_EQ(cache.Return(a, 16).ok(), keep == 16);
  }
}

TEST(PagedCacheReturn, SaysWhichRowIsGone) {
  PagedCache cache({MakeCacheGroup(CacheGroupKey::Window(6), 4)}, 9);
  const SequenceId a = cache.AddSequence();
  ASSERT_TRUE(cache.Append({{a, 32}}).ok());
  const absl::Status status = cache.Return(a, 16);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(),
            "sequence 0 of 32 tokens, back to 16: expected row 11 of cache group \"window_6\", got "
            "rows from 24 on");
  EXPECT_EQ(cache.Length(a), 32);
  EXPECT_EQ(cache.Return(a, 40).message(), "sequence 0: expected a length of 0 to 32, got 40");
  EXPECT_EQ(cache.Return(a + 1, 0).code(), absl::StatusCode::kNotFound);
}

// What a prefix is for: the second request shares its blocks and copies none.
TEST(PagedCacheReturn, APrefixOfWholeWindowsAndBlocksIsSharedWithoutACopy) {
  PagedCache cache(
      {MakeCacheGroup(CacheGroupKey::Full(), 4), MakeCacheGroup(CacheGroupKey::Compressed(4), 2)},
      29);
  const SequenceId a = cache.AddSequence();
  ASSERT_TRUE(cache.Append({{a, 20}}).ok());
  const int64_t used = cache.pool().num_held();
  const SequenceId b = *cache.Fork(a);
  ASSERT_TRUE(cache.Return(b, 16).ok());
  EXPECT_EQ(cache.Length(b), 16);
  EXPECT_EQ(cache.pool().num_held(), used);
  const StepMetadata step = *cache.Append({{b, 4}});
  EXPECT_TRUE(cache.TakeCopies().empty());
  EXPECT_EQ(step.positions, (std::vector<int64_t>{16, 17, 18, 19}));
  // Pages 0 to 4 and 5 to 7 are the first one's, 8 has the new rows of all tokens.
  EXPECT_EQ(step.groups[1].slot_mapping, (std::vector<int64_t>{-1, -1, -1, 2 * 9}));
  cache.Remove(a);
  cache.Remove(b);
  EXPECT_EQ(cache.pool().num_held(), 0);
}

}  // namespace
}  // namespace pagefuse
