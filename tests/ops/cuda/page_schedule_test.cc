// SPDX-License-Identifier: Apache-2.0
// The list of pages of random batches, cut over CTAs: every page is in one piece, and no two pieces leave their results in one place.
#include "pagefuse/ops/kernels/cuda/page_schedule.h"

#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace pagefuse::cuda {
namespace {

constexpr int kPageSize = 16;

struct Batch {
  std::vector<int32_t> starts = {0}, lengths;
  AttentionBatch batch = {};
  std::vector<int32_t> page_starts = {0};
  int chunks = 1, ctas = 1;

  PageSchedule schedule() const {
    return {page_starts.data(), static_cast<int>(lengths.size()), chunks, ctas};
  }
};

Batch RandomBatch(std::mt19937& random) {
  const auto number = [&](int low, int high) {
    return std::uniform_int_distribution(low, high)(random);
  };
  Batch made;
  const int sequences = number(1, 12);
  for (int b = 0; b < sequences; ++b) {
    made.starts.push_back(made.starts.back() + (number(0, 7) == 0 ? 0 : 1));
    made.lengths.push_back(number(0, 5) == 0 ? 0 : number(1, number(0, 3) == 0 ? 2000 : 100));
  }
  made.batch.block_size = kPageSize;
  made.batch.table_columns = 2000 / kPageSize;
  made.batch.num_sequences = sequences;
  made.batch.query_start_loc = made.starts.data();
  made.batch.seq_lens = made.lengths.data();
  made.batch.rules.sliding_window = number(0, 2) == 0 ? number(1, 200) : 0;
  made.chunks = number(1, 3);
  made.ctas = number(1, 140);
  for (int b = 0; b < sequences; ++b) {
    const PageRange pages = PagesOf(KeysOfToken(made.batch, b), kPageSize);
    made.page_starts.push_back(made.page_starts.back() + pages.count);
  }
  return made;
}

TEST(PageSchedule, KeysOfTokensAreInTheirPages) {
  std::mt19937 random(1);
  for (int i = 0; i < 1000; ++i) {
    const Batch made = RandomBatch(random);
    const AttentionBatch& batch = made.batch;
    for (int64_t b = 0; b < batch.num_sequences; ++b) {
      const KeyInterval keys = KeysOfToken(batch, b);
      const PageRange pages = PagesOf(keys, kPageSize);
      const int64_t window = batch.rules.sliding_window;
      const int64_t length = batch.num_queries(b) == 0 ? 0 : batch.length(b);
      EXPECT_EQ(std::max<int64_t>(0, keys.end - keys.begin),
                window == 0 ? length : std::min(length, window));
      if (keys.empty()) {
        EXPECT_EQ(pages.count, 0);
        continue;
      }
      EXPECT_EQ(pages.first, keys.begin / kPageSize);
      EXPECT_EQ(pages.first + pages.count, (keys.end + kPageSize - 1) / kPageSize);
    }
  }
}

TEST(PageSchedule, PiecesHaveEveryPageOnceAndPlacesOfTheirOwn) {
  std::mt19937 random(2);
  for (int i = 0; i < 10000; ++i) {
    const Batch made = RandomBatch(random);
    const PageSchedule schedule = made.schedule();
    if (schedule.total() == 0) continue;
    std::vector<int> seen(schedule.total(), 0);
    int last_slot = -1;
    for (int cta = 0; cta < made.ctas; ++cta) {
      const int end = schedule.First(cta + 1);
      for (int entry = schedule.First(cta); entry < end;) {
        const int owner = schedule.OwnerOf(entry);
        ASSERT_LE(schedule.FirstEntryOf(owner), entry);
        ASSERT_GT(schedule.EndOf(owner), entry);
        const int slot = schedule.SlotOf(owner, cta);
        ASSERT_GT(slot, last_slot);
        ASSERT_LT(slot, schedule.num_slots());
        last_slot = slot;
        for (const int stop = std::min(end, schedule.EndOf(owner)); entry < stop; ++entry) {
          ASSERT_EQ(schedule.CtaOf(entry), cta);
          ++seen[entry];
        }
      }
    }
    EXPECT_EQ(schedule.First(made.ctas), schedule.total());
    for (const int times : seen) ASSERT_EQ(times, 1);
  }
}

TEST(PageSchedule, CtasHaveTheSameNumberOfPagesButForOne) {
  std::mt19937 random(3);
  for (int i = 0; i < 1000; ++i) {
    const Batch made = RandomBatch(random);
    const PageSchedule schedule = made.schedule();
    for (int cta = 0; cta < made.ctas; ++cta) {
      const int count = schedule.First(cta + 1) - schedule.First(cta);
      EXPECT_GE(count, schedule.total() / made.ctas);
      EXPECT_LE(count, (schedule.total() + made.ctas - 1) / made.ctas);
    }
  }
}

}  // namespace
}  // namespace pagefuse::cuda
