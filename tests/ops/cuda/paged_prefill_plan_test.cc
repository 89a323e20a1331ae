// SPDX-License-Identifier: Apache-2.0
// Plans of prompts: what the kernel takes, that its tiles hold every token, and that a CTA fits its device.
#include <random>
#include <vector>

#include "gtest/gtest.h"

#include "pagefuse/ops/kernels/cuda/paged_prefill.h"

namespace pagefuse::cuda {
namespace {

PagedAttention Prompts(int64_t tokens, int64_t head_size) {
  PagedAttention p = {};
  p.element = p.compute_type = DataType::kBfloat16;
  AttentionBatch& batch = p.batch;
  batch.num_kv_heads = 8;
  batch.num_heads = 32;
  batch.head_size = head_size;
  batch.block_size = 16;
  batch.num_tokens = tokens;
  batch.num_sequences = 1;
  batch.table_columns = 512;
  batch.num_blocks = 512;
  batch.scale = 0.1f;
  const int64_t head = 2 * head_size, row = 8 * head;
  p.keys.data_strides = p.values.data_strides = {.block = 16 * row, .row = row, .head = head};
  return p;
}

bool Takes(const PagedAttention& p) { return PlanPrefill(p, 132).element != DataType::kUndefined; }

TEST(PagedPrefillPlan, TakesRowsOf16Bits) {
  PagedAttention p = Prompts(100, 128);
  EXPECT_TRUE(Takes(p));
  EXPECT_FALSE(PlanPrefill(p, 132).exact);
  p.compute_type = DataType::kFloat;
  EXPECT_TRUE(PlanPrefill(p, 132).exact);
  p.compute_type = DataType::kFloat16;
  EXPECT_FALSE(Takes(p)) << "keys would be rounded to the query's type";
  p.element = DataType::kFloat16;
  EXPECT_TRUE(Takes(p));
  p.element = p.compute_type = DataType::kFloat;
  EXPECT_FALSE(Takes(p));
}

TEST(PagedPrefillPlan, LeavesTheRestToThePlainKernel) {
  EXPECT_FALSE(Takes(Prompts(1, 128))) << "a token a sequence";
  EXPECT_FALSE(Takes(Prompts(100, 96)));
  const auto takes_but = [](auto change) {
    PagedAttention p = Prompts(100, 128);
    change(p);
    return Takes(p);
  };
  const float slopes[32] = {};
  EXPECT_FALSE(takes_but([](PagedAttention& p) { p.mode = KvQuantMode::kFp8PerTensor; }));
  EXPECT_FALSE(takes_but([](PagedAttention& p) { p.is_turboquant = true; }));
  EXPECT_FALSE(takes_but([](PagedAttention& p) { p.batch.num_ranges = 1; }));
  EXPECT_FALSE(takes_but([&](PagedAttention& p) { p.batch.alibi_slopes = slopes; }));
  EXPECT_FALSE(takes_but([&](PagedAttention& p) { p.batch.qq_bias = slopes; }));
  EXPECT_FALSE(takes_but([](PagedAttention& p) { p.batch.scale = -1; }));
  EXPECT_FALSE(takes_but([](PagedAttention& p) { p.keys.data_strides.row += 8; }));
  // Places in units of 16 bytes: 2^31 of them are too many.
  EXPECT_FALSE(takes_but([](PagedAttention& p) { p.batch.num_blocks = int64_t{1} << 20; }));
}

// Sequences have their tiles one behind the other, whatever their lengths.
TEST(PagedPrefillPlan, TilesHoldAllTokens) {
  std::mt19937 random(1);
  for (int round = 0; round < 1000; ++round) {
    std::vector<int32_t> starts = {0};
    for (int b = 0; b < 8; ++b) {
      starts.push_back(starts.back() + static_cast<int32_t>(random() % 3 * (random() % 90)));
    }
    PagedAttention p = Prompts(starts.back(), round % 2 == 0 ? 128 : 256);
    p.batch.num_heads = 8 * (1 + round % 9);
    p.batch.num_sequences = 8;
    p.batch.query_start_loc = starts.data();
    if (!Takes(p)) continue;
    const AttentionCut cut = PlanPrefill(p, 132).cut;
    EXPECT_EQ(cut.part_heads * cut.parts, p.batch.group());
    for (int b = 0; b < 8; ++b) {
      const int64_t tiles = (p.batch.num_queries(b) + cut.tile_tokens - 1) / cut.tile_tokens;
      const int64_t next = b == 7 ? cut.tiles : cut.FirstTile(p.batch, cut.tile_tokens, b + 1);
      EXPECT_LE(cut.FirstTile(p.batch, cut.tile_tokens, b) + tiles, next);
    }
  }
}

TEST(PagedPrefillPlan, FewTilesShareKeys) {
  EXPECT_EQ(PlanPrefill(Prompts(4096, 128), 132).cut.splits, 1);
  const int splits = PlanPrefill(Prompts(32, 128), 132).cut.splits;
  EXPECT_GT(splits, 8);
  PagedAttention few_keys = Prompts(32, 128);
  few_keys.batch.table_columns = 8;
  EXPECT_EQ(PlanPrefill(few_keys, 132).cut.splits, 1);
}

TEST(PagedPrefillPlan, CtasFit) {
  constexpr int kOfSm80 = 163 << 10, kOfSm86 = 99 << 10, kReserved = 1 << 10;
  for (const int head_size : {64, 128, 256}) {
    for (const bool is_bfloat : {false, true}) {
      EXPECT_LE(PrefillTile::Of(is_bfloat, head_size, true).bytes(), kOfSm80);
      const int bytes = PrefillTile::Of(is_bfloat, head_size, false).bytes();
      EXPECT_LE(bytes, kOfSm86);
      EXPECT_LE(2 * (bytes + kReserved), 228 << 10) << "two of a multiprocessor of sm_90";
    }
  }
}

}  // namespace
}  // namespace pagefuse::cuda
