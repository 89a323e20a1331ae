// SPDX-License-Identifier: Apache-2.0
// The prefix tree against a list of all texts, and a cache whose rows are known: what a sequence reads
// in any step is what its own tokens wrote, whatever was shared, evicted, failed or given back.
#include "pagefuse/runtime/prefix_tree.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/hash/hash.h"
#include "must.h"
#include <gtest/gtest.h>

#include "pagefuse/runtime/paged_cache.h"

namespace pagefuse {
namespace {

struct Text {
  std::vector<int64_t> tokens;
  int64_t read = 0;
  std::string salt;

  PrefixText prefix() const { return {tokens, read, salt}; }
  // Equal for equal beginnings of texts with one salt, in which the same tokens were read.
  uint64_t HashAt(int64_t length) const {
    return absl::HashOf(salt, std::min(read, length), length,
                        absl::MakeConstSpan(tokens.data(), static_cast<size_t>(length)));
  }
};

std::vector<CacheGroup> AllKinds() {
  return {MakeCacheGroup(CacheGroupKey::Full(), 4), MakeCacheGroup(CacheGroupKey::Window(6), 2),
          MakeCacheGroup(CacheGroupKey::Compressed(4), 1),
          MakeCacheGroup(CacheGroupKey::State(4, true), 4)};
}

// Random texts over few tokens, so that many begin alike.
Text RandomText(std::mt19937& random, int64_t most) {
  Text text;
  const auto length = static_cast<int64_t>(1 + random() % most);
  for (int64_t i = 0; i < length; ++i) {
    text.tokens.push_back(random() % 8 == 0 ? random() % 3 : i % 3);
  }
  text.read = random() % 3 == 0 ? 1 + static_cast<int64_t>(random() % length) : length;
  if (random() % 5 == 0) text.salt = "other";
  return text;
}

// Every text that came before, and where checkpoints were made.
class NaiveTree {
 public:
  NaiveTree(int64_t unit, bool has_windows) : unit_(unit), has_windows_(has_windows) {}
  void Publish(const Text& text, int64_t length) {
    for (int64_t end = unit_; end <= length; end += unit_) nodes_.insert(KeyOf(text, end));
  }
  void MakeCheckpoint(const Text& text, int64_t length) {
    checkpoints_.insert(KeyOf(text, length));
  }
  int64_t Find(const Text& text) const {
    const auto known = static_cast<int64_t>(text.tokens.size());
    int64_t longest = 0;
    for (int64_t end = unit_; end < known && nodes_.contains(KeyOf(text, end)); end += unit_) {
      const bool enough = end <= text.read - 2 || end >= text.read;
      const bool can = !has_windows_ || checkpoints_.contains(KeyOf(text, end));
      if (enough && can) longest = end;
    }
    return longest;
  }

 private:
  using Key = std::tuple<std::string, int64_t, std::vector<int64_t>>;
  static Key KeyOf(const Text& text, int64_t end) {
    return {text.salt, std::min(text.read, end), {text.tokens.begin(), text.tokens.begin() + end}};
  }
  int64_t unit_;
  bool has_windows_;
  std::set<Key> nodes_, checkpoints_;
};

void CompareWithNaive(const std::vector<CacheGroup>& groups, const PrefixTree::Options& options,
                      int rounds) {
  PagedCache cache(groups, 1 << 20, {.keeps_texts = true, .tree = options});
  PrefixTree& tree = *cache.tree();
  const bool has_windows =
      std::ranges::any_of(groups, [](const CacheGroup& g) { return g.sliding_window > 0; });
  NaiveTree naive(tree.unit(), has_windows);
  std::mt19937 random(5);
  int hits = 0;
  for (int round = 0; round < rounds; ++round) {
    const Text text = RandomText(random, 40);
    const PrefixTree::Hit hit = tree.Find(text.prefix());
    ASSERT_EQ(hit.length, naive.Find(text)) << round;
    hits += hit.length > 0 ? 1 : 0;
    const SequenceId sequence = cache.AddSequence(hit);
    const auto length = static_cast<int64_t>(text.tokens.size());
    while (cache.Length(sequence) < length) {
      const auto piece =
          std::min<int64_t>(length - cache.Length(sequence), 1 + random() % (2 * tree.unit()));
      Must(cache.Reserve({{sequence, piece}}));
      const int64_t end = cache.Length(sequence) / tree.unit() * tree.unit();
      cache.Publish(sequence, text.prefix(), end);
      naive.Publish(text, end);
      if (end > 0 && end > cache.Length(sequence) - piece && random() % 2 == 0) {
        cache.MakeCheckpoint(sequence, end);
        naive.MakeCheckpoint(text, end);
      }
      cache.Commit();
    }
    cache.Remove(sequence);
    ASSERT_EQ(cache.pool().num_held(), 0);
    if (round % 1000 == 0) {
      ASSERT_TRUE(cache.CheckAccounts().ok()) << cache.CheckAccounts();
    }
  }
  EXPECT_GT(hits, rounds / 4);
  tree.Clear();
  EXPECT_EQ(tree.num_nodes(), 0);
  EXPECT_EQ(cache.pool().num_used(), 0);
}

TEST(PrefixTree, FindsTheLongestBeginning) {
  CompareWithNaive(AllKinds(), {}, 50000);
  CompareWithNaive({MakeCacheGroup(CacheGroupKey::Full(), 4)}, {}, 50000);
}

TEST(PrefixTree, EqualHashesNeverShare) { CompareWithNaive(AllKinds(), {.hash_mask = 0}, 800); }

TEST(PrefixTree, NodesHoldWholeBlocksOfAllGroups) {
  EXPECT_EQ(PrefixTree::UnitOf(AllKinds()), 4);
  EXPECT_EQ(PrefixTree::UnitOf({MakeCacheGroup(CacheGroupKey::Full(), 6),
                                MakeCacheGroup(CacheGroupKey::Window(9), 4)}),
            12);
  // Rows of many tokens: few of them a block.
  EXPECT_EQ(PrefixTree::UnitOf({MakeCacheGroup(CacheGroupKey::Full(), 16),
                                MakeCacheGroup(CacheGroupKey::Compressed(128), 16)}),
            256);
}

// Conversations in turn, each a little longer than the last time, in a pool that is too small for all:
// something of them is found again, where the least recently used alone would be gone each time.
TEST(PrefixTree, TextsInTurnThatOutgrowThePoolAreFoundInPart) {
  PagedCache cache({MakeCacheGroup(CacheGroupKey::Full(), 4)}, 8 * 64 * 4 / 5,
                   {.keeps_texts = true});
  int64_t found = 0, needed = 0;
  for (int64_t turn = 0; turn < 10; ++turn) {
    for (int64_t who = 0; who < 8; ++who) {
      Text text;
      for (int64_t i = 0; i < 256; ++i) text.tokens.push_back(1000 * who + i);
      text.read = 256;
      const PrefixTree::Hit hit = cache.tree()->Find(text.prefix());
      if (turn > 0) found += hit.length, needed += 256;
      const SequenceId sequence = cache.AddSequence(hit);
      Must(cache.Reserve({{sequence, 256 - hit.length}}));
      cache.Publish(sequence, text.prefix(), 256);
      cache.Commit();
      cache.Remove(sequence);
    }
  }
  EXPECT_GT(found * 5, needed) << found << " of " << needed;
  EXPECT_TRUE(cache.CheckAccounts().ok()) << cache.CheckAccounts();
}

// Rows of a cache: each holds the hash of the text up to its token, and each step reads what it should.
class KnownRows {
 public:
  explicit KnownRows(int64_t pages)
      : cache_(AllKinds(), pages, {.keeps_texts = true}), random_(pages) {
    for (const CacheGroup& group : cache_.groups()) {
      rows_.emplace_back(pages * group.block_size);
    }
  }
  PagedCache& cache() { return cache_; }
  int64_t shared() const { return shared_; }
  int64_t failed() const { return failed_; }
  int64_t waited() const { return waited_; }

  void Operate() {
    const uint64_t what = random_() % 16;
    if (texts_.empty() || (what < 3 && texts_.size() < 6)) return Begin();
    auto it = texts_.begin();
    std::advance(it, random_() % texts_.size());
    if (what == 3) return ForkOf(*it);
    if (what == 4) return GiveBack(*it);
    Step();
  }
  void RemoveAll() {
    for (const auto& [sequence, text] : texts_) cache_.Remove(sequence);
    texts_.clear();
  }

 private:
  void Begin() {
    const Text text = RandomText(random_, 40);
    const PrefixTree::Hit hit = cache_.tree()->Find(text.prefix());
    texts_[cache_.AddSequence(hit)] = text;
    shared_ += hit.length;
  }
  void ForkOf(const std::pair<const SequenceId, Text>& parent) {
    texts_[Must(cache_.Fork(parent.first))] = parent.second;
  }
  // As one that is preempted: all whole nodes stay.
  void GiveBack(const std::pair<const SequenceId, Text>& one) {
    const SequenceId sequence = one.first;
    const int64_t unit = cache_.tree()->unit();
    const int64_t whole = cache_.Length(sequence) / unit * unit;
    if (random_() % 2 == 0) {
      cache_.Publish(sequence, one.second.prefix(), whole);
      cache_.MakeCheckpoint(sequence, whole);
    }
    cache_.Remove(sequence);
    texts_.erase(sequence);
  }

  void Step() {
    std::vector<StepEntry> entries;
    PagedCache::Room room(cache_);
    for (auto& [sequence, text] : texts_) {
      const auto known = static_cast<int64_t>(text.tokens.size());
      const int64_t left = known - cache_.Length(sequence);
      StepEntry entry{.sequence = sequence,
                      .num_tokens = std::min<int64_t>(left, 1 + random_() % 9)};
      if (left == 0) {
        text.tokens.push_back(random_() % 3);
        entry.num_tokens = 1;
      }
      if (random_() % 3 == 0) continue;
      if (room.Take(entry)) {
        entries.push_back(entry);
      } else {
        ++waited_;
      }
    }
    const StepMetadata step = Must(cache_.Reserve(entries));
    for (const PagedCache::Copy& copy : cache_.TakeCopies()) {
      const int64_t size = cache_.groups()[copy.group].block_size;
      std::copy_n(rows_[copy.group].begin() + copy.from * size, size,
                  rows_[copy.group].begin() + copy.to * size);
    }
    const bool fails = random_() % 5 == 0;
    int64_t token = 0;
    for (size_t i = 0; i < entries.size(); ++i) {
      const Text& text = texts_.at(entries[i].sequence);
      const int64_t before = step.seq_lens[i] - entries[i].num_tokens;
      for (int64_t t = 0; t < entries[i].num_tokens; ++t, ++token) {
        ASSERT_EQ(step.positions[token], before + t);
        for (size_t g = 0; g < rows_.size(); ++g) {
          const int64_t slot = step.groups[g].slot_mapping[token];
          if (slot >= 0) rows_[g][slot] = fails ? 0 : text.HashAt(before + t + 1);
        }
      }
    }
    if (fails) {
      ++failed_;
      return cache_.RollBack();
    }
    for (size_t i = 0; i < entries.size(); ++i) CheckRows(entries[i], step, i);
    for (const StepEntry& entry : entries) Keep(entry);
    cache_.Commit();
  }

  void CheckRows(const StepEntry& entry, const StepMetadata& step, size_t sequence) {
    const Text& text = texts_.at(entry.sequence);
    const int64_t length = step.seq_lens[sequence];
    for (size_t g = 0; g < rows_.size(); ++g) {
      const CacheGroup& group = cache_.groups()[g];
      const int32_t* table =
          step.groups[g].block_table.data() + sequence * step.groups[g].max_blocks;
      const int64_t first = group.kind == CacheKind::kState
                                ? group.FirstNeeded(length - entry.num_tokens)
                                : group.FirstVisible(length - entry.num_tokens);
      for (int64_t row = first; row < group.RowsOf(length); ++row) {
        const int64_t slot =
            table[row / group.block_size] * group.block_size + row % group.block_size;
        ASSERT_EQ(rows_[g][slot], text.HashAt((row + 1) * group.tokens_per_row()))
            << group.name << " row " << row << " of " << length;
      }
    }
  }

  void Keep(const StepEntry& entry) {
    const Text& text = texts_.at(entry.sequence);
    const int64_t unit = cache_.tree()->unit();
    const int64_t end = std::min(cache_.Length(entry.sequence), text.read) / unit * unit;
    if (random_() % 2 == 0) cache_.Publish(entry.sequence, text.prefix(), end);
    if (random_() % 2 == 0) cache_.MakeCheckpoint(entry.sequence, end);
  }

  PagedCache cache_;
  std::mt19937 random_;
  std::map<SequenceId, Text> texts_;
  std::vector<std::vector<uint64_t>> rows_;
  int64_t shared_ = 0, failed_ = 0, waited_ = 0;
};

TEST(CacheStep, SequencesReadWhatTheyWroteWhateverIsSharedAndFails) {
  for (const int64_t blocks : {24, 60, 2000}) {
    KnownRows rows(blocks);
    for (int i = 0; i < 60000; ++i) {
      rows.Operate();
      if (testing::Test::HasFatalFailure()) FAIL() << i << " of " << blocks << " blocks";
      if (blocks < 2000 || i % 500 == 0) {
        ASSERT_TRUE(rows.cache().CheckAccounts().ok()) << i << " " << rows.cache().CheckAccounts();
      }
      if (i % 97 == 0) rows.RemoveAll();  // else all may wait for ever
    }
    EXPECT_GT(rows.shared(), 3000) << blocks;
    EXPECT_GT(rows.failed(), 1000) << blocks;
    EXPECT_GE(rows.waited(), blocks < 2000 ? 100 : 0) << blocks;
    rows.RemoveAll();
    EXPECT_EQ(rows.cache().pool().num_held(), 0);
    EXPECT_TRUE(rows.cache().CheckAccounts().ok()) << rows.cache().CheckAccounts();
  }
}

}  // namespace
}  // namespace pagefuse
