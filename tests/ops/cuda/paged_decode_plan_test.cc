// SPDX-License-Identifier: Apache-2.0
// Plans of decodes for devices of any size: none asks the join for more shared memory than it has.
#include <vector>

#include "gtest/gtest.h"

#include "pagefuse/ops/kernels/cuda/paged_decode.h"

namespace pagefuse::cuda {
namespace {

// A batch of long sequences over TurboQuant slots.
PagedAttention Slots(int64_t kv_heads, int64_t group, TurboQuantFormat slot) {
  PagedAttention p = {};
  p.is_turboquant = true;
  p.slot = slot;
  p.compute_type = DataType::kBfloat16;
  AttentionBatch& batch = p.batch;
  batch.num_kv_heads = kv_heads;
  batch.num_heads = kv_heads * group;
  batch.head_size = slot.head_size;
  batch.block_size = 16;
  batch.num_tokens = batch.num_sequences = 4;
  batch.num_blocks = 1 << 14;
  batch.table_columns = 1 << 12;
  const int64_t bytes = (slot.SlotBytes() + 3) / 4 * 4;
  p.keys.data_strides = {.block = 16 * kv_heads * bytes, .row = kv_heads * bytes, .head = bytes};
  return p;
}

int JoinBytes(const PagedAttention& p, const DecodePlan& plan) {
  return DecodeJoinBytes(static_cast<int>(p.batch.head_size), plan.ctas * plan.parts_of_head(),
                         kJoinWarps);
}

TEST(PagedDecodePlan, TheJoinFitsOnEveryDevice) {
  const std::vector<TurboQuantFormat> slots = {{.key_bits = 3, .value_bits = 4, .head_size = 128},
                                               {.key_bits = 4, .value_bits = 4, .head_size = 128},
                                               {.key_bits = 8, .value_bits = 4, .head_size = 128}};
  for (const TurboQuantFormat& slot : slots) {
    for (const int64_t kv_heads : {1, 2, 4, 8}) {
      const PagedAttention p = Slots(kv_heads, 8, slot);
      for (int multiprocessors = 16; multiprocessors <= 512; multiprocessors += 4) {
        const DecodePlan plan = PlanDecode(p, 90, multiprocessors);
        ASSERT_EQ(plan.format, DecodeFormat::kTurboQuant);
        EXPECT_LE(plan.ctas, multiprocessors);
        EXPECT_LE(JoinBytes(p, plan), kJoinShared)
            << kv_heads << " KV heads on " << multiprocessors << " multiprocessors";
      }
    }
  }
}

PagedAttention FloatRows(int64_t sequences, int64_t kv_heads, int64_t head_size) {
  PagedAttention p = {};
  AttentionBatch& batch = p.batch;
  batch.num_kv_heads = kv_heads;
  batch.num_heads = 8 * kv_heads;
  batch.head_size = head_size;
  batch.block_size = 16;
  batch.num_tokens = batch.num_sequences = sequences;
  batch.table_columns = 512;
  batch.num_blocks = sequences * batch.table_columns;
  const int64_t head = 4 * head_size, row = kv_heads * head;
  p.keys.data_strides = p.values.data_strides = {.block = 16 * row, .row = row, .head = head};
  return p;
}

// The largest pages that there are: each warp has one to compute and one that comes.
TEST(PagedDecodePlan, FloatPagesFit) {
  for (const int64_t head_size : {64, 128, 256}) {
    for (const int64_t kv_heads : {1, 2, 3, 8}) {
      for (const int sequences : {1, 64, kDecodeSequences}) {
        const DecodePlan plan = PlanDecode(FloatRows(sequences, kv_heads, head_size), 90, 132);
        ASSERT_EQ(plan.format, DecodeFormat::kFloat);
        EXPECT_GE(plan.stages, 2 * plan.phases);
        EXPECT_LE(plan.stages_at + plan.stages * plan.stage_bytes + kStageAlignment, kDecodeShared);
      }
    }
  }
}

TEST(PagedDecodePlan, AllMultiprocessorsWorkWhereTheJoinFits) {
  const TurboQuantFormat slot = {.key_bits = 4, .value_bits = 4, .head_size = 128};
  EXPECT_EQ(PlanDecode(Slots(1, 8, slot), 90, 132).ctas, 132);
  EXPECT_EQ(PlanDecode(Slots(1, 8, slot), 90, 160).ctas, 159);
  EXPECT_EQ(PlanDecode(Slots(8, 4, slot), 90, 512).ctas, 512);
}

}  // namespace
}  // namespace pagefuse::cuda
