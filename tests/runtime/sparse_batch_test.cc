#include "pagefuse/runtime/sparse_batch.h"

#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "must.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pagefuse {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Ints = std::vector<int32_t>;

Ints StartsOf(const Ints& query_lens) {
  Ints starts = {0};
  for (const int32_t length : query_lens) starts.push_back(starts.back() + length);
  return starts;
}

// Each value as often as its count says.
Ints Repeated(const std::vector<std::pair<int32_t, int>>& runs) {
  Ints values;
  for (const auto& [value, count] : runs) values.insert(values.end(), count, value);
  return values;
}

SparseBatch Batch(const Ints& query_lens, const Ints& seq_lens, int64_t threshold,
                  int64_t max_model_len) {
  return Must(MakeSparseBatch(StartsOf(query_lens), seq_lens,
                              {.fp8_cache = true,
                               .num_heads = 64,
                               .threshold = threshold,
                               .max_model_len = max_model_len}));
}

std::string ErrorOf(const absl::Status& status) { return std::string(status.message()); }

TEST(SparseBatch, DecodesAndPrefillsInTwoChunks) {
  const SparseBatch batch = Batch({1, 1, 5, 10, 3, 5}, {40, 9, 10, 15, 20, 5}, 1, 5);
  EXPECT_EQ(batch.mode, SparseMode::kSeparate);
  EXPECT_EQ(batch.split, (DecodeSplit{2, 2, 4, 23, 1}));
  EXPECT_EQ(batch.request_of_token, Repeated({{0, 1}, {1, 1}, {2, 5}, {3, 10}, {4, 3}, {5, 5}}));
  EXPECT_EQ(batch.prefills.prefill_request_id,
            Repeated({{-1, 2}, {0, 5}, {1, 10}, {2, 3}, {3, 5}}));
  EXPECT_EQ(batch.prefills.workspace_rows, 25);
  EXPECT_THAT(batch.prefills.chunks,
              ElementsAre(PrefillChunk{0, 2, 2, 17, 25}, PrefillChunk{2, 4, 17, 25, 25}));
  EXPECT_THAT(batch.prefills.workspace_starts, ElementsAre(0, 10, 0, 20));
}

TEST(SparseBatch, SpeculativeTokensOfEveryRequestAreDecodes) {
  const SparseBatch batch = Batch({2, 2, 2}, {9, 12, 30}, 2, 100);
  EXPECT_EQ(batch.split, (DecodeSplit{3, 6, 0, 0, 2}));
  EXPECT_THAT(batch.prefills.chunks, IsEmpty());
}

TEST(SparseBatch, AShorterRequestBehindALongerOneIsAPrefill) {
  const SparseBatch batch = Batch({2, 1, 7}, {9, 12, 30}, 2, 100);
  EXPECT_EQ(batch.split, (DecodeSplit{1, 2, 2, 8, 2}));
  EXPECT_THAT(batch.prefills.chunks, ElementsAre(PrefillChunk{0, 2, 2, 10, 42}));
  EXPECT_THAT(batch.prefills.workspace_starts, ElementsAre(0, 12));
}

TEST(SparseBatch, PaddingRequestsAreDecodes) {
  const SparseBatch batch = Batch({2, 2, 0, 0}, {9, 12, 0, 0}, 2, 100);
  EXPECT_EQ(batch.split, (DecodeSplit{4, 4, 0, 0, 2}));
}

TEST(SparseBatch, AOneTokenRequestBehindAPrefillIsAPrefill) {
  const SparseBatch batch = Batch({6, 1}, {6, 20}, 1, 100);
  EXPECT_EQ(batch.split, (DecodeSplit{0, 0, 2, 7, 0}));
  EXPECT_EQ(batch.prefills.prefill_request_id, Repeated({{0, 6}, {1, 1}}));
  EXPECT_THAT(batch.prefills.workspace_starts, ElementsAre(0, 6));
}

TEST(SparseBatch, ChunksAreFilledInOrder) {
  const Ints lens = {30, 60, 50, 10, 90};
  const SparseBatch batch = Batch(lens, lens, 1, 20);
  EXPECT_EQ(batch.prefills.workspace_rows, 100);
  EXPECT_THAT(batch.prefills.chunks,
              ElementsAre(PrefillChunk{0, 2, 0, 90, 90}, PrefillChunk{2, 4, 90, 150, 60},
                          PrefillChunk{4, 5, 150, 240, 90}));
  EXPECT_THAT(batch.prefills.workspace_starts, ElementsAre(0, 30, 0, 50, 0));
}

TEST(SparseBatch, AnEmptyBatchHasNothing) {
  const SparseBatch batch = Batch({}, {}, 1, 100);
  EXPECT_EQ(batch.split, DecodeSplit());
  EXPECT_THAT(batch.request_of_token, IsEmpty());
  EXPECT_THAT(batch.prefills.chunks, IsEmpty());
}

TEST(SparseBatch, TheModeFollowsCacheAndHeads) {
  EXPECT_EQ(ChooseSparseMode(false, 128), SparseMode::kBfloat16);
  EXPECT_EQ(ChooseSparseMode(true, 31), SparseMode::kMixed);
  EXPECT_EQ(ChooseSparseMode(true, 32), SparseMode::kSeparate);
}

TEST(SparseBatch, OnlySeparatePrefillsArePlanned) {
  const auto batch = Must(MakeSparseBatch(
      Ints{0, 6, 7}, Ints{6, 20}, {.fp8_cache = true, .num_heads = 16, .max_model_len = 100}));
  EXPECT_EQ(batch.mode, SparseMode::kMixed);
  EXPECT_EQ(batch.split.prefills, 2);
  EXPECT_THAT(batch.prefills.chunks, IsEmpty());
}

TEST(SparseBatch, ErrorsNameInputAndRequest) {
  const SparseBatchOptions options = {.num_heads = 64, .max_model_len = 4};
  const auto error = [&](const Ints& starts, const Ints& seq_lens, const SparseBatchOptions& with) {
    return ErrorOf(MakeSparseBatch(starts, seq_lens, with).status());
  };
  EXPECT_EQ(error({}, {}, options), "query_start_loc: expected 0 first, got nothing");
  EXPECT_EQ(error({1, 2}, {1}, options), "query_start_loc: expected 0 first, got 1");
  EXPECT_EQ(error({0, 3, 2}, {3, 3}, options), "query_start_loc: falls from 3 to 2 at request 1");
  EXPECT_EQ(error({0, 3}, {3, 3}, options),
            "seq_lens: expected 1 requests as query_start_loc has, got 2");
  EXPECT_EQ(error({0, 3}, {2}, options),
            "seq_lens: expected at least the 3 query tokens of request 0, got 2");
  EXPECT_EQ(error({0, 3}, {3}, {.num_heads = 0, .max_model_len = 4}),
            "num_heads: expected 1 to 2147483647, got 0");
  EXPECT_EQ(error({0, 3}, {3}, {.num_heads = 64, .threshold = 0, .max_model_len = 4}),
            "threshold: expected 1 to 2147483647, got 0");
  EXPECT_EQ(error({0, 3}, {3}, {.num_heads = 64, .max_model_len = 0}),
            "max_model_len: expected 1 to 429496729, got 0");
}

TEST(SparseBatch, ARequestLongerThanTheWorkspaceIsNamed) {
  const auto batch =
      MakeSparseBatch(Ints{0, 3, 7}, Ints{3, 21}, {.num_heads = 64, .max_model_len = 4});
  EXPECT_EQ(batch.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ErrorOf(batch.status()), "seq_lens: request 1 has 21 tokens, the workspace 20 rows");
}

// Every prefill is in one chunk, rows of a chunk do not overlap, and one prefill more would not
// have fitted.
TEST(SparseBatch, RandomPlansFillChunksGreedily) {
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    Ints query_lens;
    Ints seq_lens;
    for (int r = 0; r < static_cast<int>(random() % 12); ++r) {
      query_lens.push_back(static_cast<int32_t>(random() % 9 + 1));
      seq_lens.push_back(static_cast<int32_t>(query_lens.back() + random() % 30));
    }
    const SparseBatch batch = Batch(query_lens, seq_lens, 1 + random() % 2, 8);
    const int64_t decodes = batch.split.decodes;
    int64_t next = 0;
    for (const PrefillChunk& chunk : batch.prefills.chunks) {
      EXPECT_EQ(chunk.first, next);
      int64_t row = 0;
      for (int64_t p = chunk.first; p < chunk.end; ++p) {
        EXPECT_EQ(batch.prefills.workspace_starts[p], row);
        row += seq_lens[decodes + p];
      }
      EXPECT_EQ(chunk.rows, row);
      EXPECT_LE(row, 40);
      if (chunk.end < batch.split.prefills) {
        EXPECT_GT(row + seq_lens[decodes + chunk.end], 40);
      }
      next = chunk.end;
    }
    EXPECT_EQ(next, batch.split.prefills);
  }
}

// area = 4 * (ceil(100 / 4) + 8 + 10) = 172. Requests 0 and 1 need 25 compressed and 12 window
// rows each, 37 a request; four of 37 are 148, five 185.
TEST(CompressedPrefills, AChunkIsARectangleOfTheLargestNeeds) {
  const Ints query_lens = {5, 5, 1, 2, 3};
  const Ints seq_lens = {100, 60, 4, 2, 3};
  const auto plan = Must(PlanCompressedPrefills(
      StartsOf(query_lens), seq_lens,
      {.window_size = 8, .compress_ratio = 4, .max_model_len = 100, .max_tokens_per_step = 10}));
  EXPECT_EQ(plan.area, 172);
  EXPECT_THAT(plan.gather_lens, ElementsAre(12, 12, 4, 2, 3));
  EXPECT_THAT(plan.chunks, ElementsAre(CompressedPrefillChunk{0, 4, 0, 13, 25, 37},
                                       CompressedPrefillChunk{4, 5, 13, 16, 0, 3}));
}

TEST(CompressedPrefills, WithoutCompressionOnlyTheWindowIsGathered) {
  const auto plan = Must(
      PlanCompressedPrefills(Ints{0, 4, 8}, Ints{4, 50},
                             {.window_size = 128, .max_model_len = 64, .max_tokens_per_step = 8}));
  EXPECT_EQ(plan.area, 4 * (64 + 128 + 8));
  EXPECT_THAT(plan.gather_lens, ElementsAre(4, 50));
  EXPECT_THAT(plan.chunks, ElementsAre(CompressedPrefillChunk{0, 2, 0, 8, 0, 50}));
}

TEST(CompressedPrefills, ErrorsNameWhatIsWrong) {
  const CompressedPrefillOptions options = {
      .window_size = 2, .compress_ratio = 4, .max_model_len = 4, .max_tokens_per_step = 1};
  const auto plan = PlanCompressedPrefills(Ints{0, 40}, Ints{40}, options);
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ErrorOf(plan.status()), "seq_lens: request 0 needs 50 rows, the workspace has 16");
  CompressedPrefillOptions no_window = options;
  no_window.window_size = 0;
  EXPECT_EQ(ErrorOf(PlanCompressedPrefills(Ints{0, 1}, Ints{1}, no_window).status()),
            "window_size: expected 1 to 2147483647, got 0");
  EXPECT_EQ(ErrorOf(PlanCompressedPrefills(Ints{0, 2}, Ints{1}, options).status()),
            "seq_lens: expected at least the 2 query tokens of request 0, got 1");
}

}  // namespace
}  // namespace pagefuse
