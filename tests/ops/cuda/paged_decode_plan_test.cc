// SPDX-License-Identifier: Apache-2.0
// Plans of decodes for devices of any size: none asks for more shared memory than there is.
#include <vector>

#include "gtest/gtest.h"

#include "pagefuse/ops/kernels/cuda/paged_decode.h"

namespace pagefuse::cuda {
namespace {

constexpr int kHopperShared = 227 << 10;

DecodePlan PlanOnHopper(const PagedAttention& p, int multiprocessors) {
  return PlanDecode(p, {90, multiprocessors, kHopperShared});
}

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
        const DecodePlan plan = PlanOnHopper(p, multiprocessors);
        ASSERT_EQ(plan.format, DecodeFormat::kTurboQuant);
        EXPECT_LE(plan.ctas, multiprocessors);
        EXPECT_LE(JoinBytes(p, plan), kJoinShared)
            << kv_heads << " KV heads on " << multiprocessors << " multiprocessors";
      }
    }
  }
}

PagedAttention Rows(int64_t sequences, int64_t kv_heads, int64_t head_size, DataType element,
                    DataType query) {
  PagedAttention p = {};
  p.element = element;
  p.compute_type = query;
  if (element == DataType::kInt8) {
    alignas(16) static uint8_t scales[16] = {};
    p.mode = KvQuantMode::kInt8PerTokenHead;
    p.keys.scales = p.values.scales = scales;
    p.keys.scale_strides =
        p.values.scale_strides = {.block = 64 * kv_heads, .row = 4 * kv_heads, .head = 4};
  }
  AttentionBatch& batch = p.batch;
  batch.num_kv_heads = kv_heads;
  batch.num_heads = 8 * kv_heads;
  batch.head_size = head_size;
  batch.block_size = 16;
  batch.num_tokens = batch.num_sequences = sequences;
  batch.table_columns = 512;
  batch.num_blocks = sequences * batch.table_columns;
  const int64_t head = BitWidth(element) / 8 * head_size, row = kv_heads * head;
  p.keys.data_strides = p.values.data_strides = {.block = 16 * row, .row = row, .head = head};
  return p;
}

// Two pages of each warp and what lies before them, or no plan.
void ExpectFits(const DecodePlan& plan, int room) {
  if (plan.format == DecodeFormat::kNone) return;
  EXPECT_GE(plan.stages, 2 * plan.phases);
  EXPECT_LE(plan.shared_bytes, room);
  EXPECT_LE(plan.stages_at + plan.stages * plan.stage_bytes + kStageAlignment, plan.shared_bytes);
}

// The largest pages that there are: each warp has one to compute and one that comes.
TEST(PagedDecodePlan, FloatPagesFit) {
  for (const int64_t head_size : {64, 128, 256}) {
    for (const int64_t kv_heads : {1, 2, 3, 8}) {
      for (const int sequences : {1, 64, kDecodeSequences}) {
        const PagedAttention p =
            Rows(sequences, kv_heads, head_size, DataType::kFloat, DataType::kFloat);
        const DecodePlan plan = PlanOnHopper(p, 132);
        ASSERT_EQ(plan.format, DecodeFormat::kFloat);
        ExpectFits(plan, kHopperShared);
      }
    }
  }
}

TEST(PagedDecodePlan, AllMultiprocessorsWorkWhereTheJoinFits) {
  const TurboQuantFormat slot = {.key_bits = 4, .value_bits = 4, .head_size = 128};
  EXPECT_EQ(PlanOnHopper(Slots(1, 8, slot), 132).ctas, 132);
  EXPECT_EQ(PlanOnHopper(Slots(1, 8, slot), 160).ctas, 159);
  EXPECT_EQ(PlanOnHopper(Slots(8, 4, slot), 512).ctas, 512);
}

// Shared memory of a CTA: sm_120, sm_87, sm_90.
constexpr int kRooms[] = {99 << 10, 163 << 10, kHopperShared};

TEST(PagedDecodePlan, RowsFitOrAreThePlainKernels) {
  constexpr auto kQuery = DataType::kBfloat16;
  for (const DataType element : {DataType::kFloat, kQuery, DataType::kInt8}) {
    const DataType query = element == DataType::kFloat ? element : kQuery;
    for (const int64_t head_size : {64, 128, 256}) {
      for (const int64_t kv_heads : {1, 2, 3, 8}) {
        for (const int sequences : {1, 4, 64, kDecodeSequences}) {
          const PagedAttention p = Rows(sequences, kv_heads, head_size, element, query);
          for (const int room : kRooms) ExpectFits(PlanDecode(p, {90, 132, room}), room);
        }
      }
    }
  }
}

TEST(PagedDecodePlan, SlotsFitOrAreThePlainKernels) {
  for (const int key_bits : {3, 4, 8}) {
    for (const int64_t kv_heads : {1, 2, 4, 8}) {
      const PagedAttention p =
          Slots(kv_heads, 8, {.key_bits = key_bits, .value_bits = 4, .head_size = 128});
      for (const int room : kRooms) {
        const DecodePlan plan = PlanDecode(p, {90, 132, room});
        ExpectFits(plan, room);
        if (key_bits == 8 || plan.format == DecodeFormat::kNone) continue;
        // Stages lie around a table at a multiple of its size, wherever that is: less than one of them is lost in front of it.
        const int table = key_bits == 4 ? 1 << 16 : 1 << 13;
        EXPECT_LE(table, plan.stages * plan.stage_bytes);
        EXPECT_LE(plan.stages_at + (plan.stages + 1) * plan.stage_bytes + table + kStageAlignment,
                  plan.shared_bytes);
      }
    }
  }
}

// Two pages of a warp: of how many bytes they are decides.
TEST(PagedDecodePlan, SmallPagesNeedLittleMemory) {
  const auto on_small = [](int64_t head_size, DataType element) {
    const PagedAttention p = Rows(4, 8, head_size, element, DataType::kBfloat16);
    return PlanDecode(p, {120, 170, 99 << 10}).format;
  };
  EXPECT_EQ(on_small(128, DataType::kInt8), DecodeFormat::kInt8);
  EXPECT_EQ(on_small(64, DataType::kBfloat16), DecodeFormat::kBfloat16);
  EXPECT_EQ(on_small(128, DataType::kBfloat16), DecodeFormat::kNone);
}

TEST(PagedDecodePlan, OldDevicesHaveNone) {
  const PagedAttention p = Rows(4, 8, 128, DataType::kInt8, DataType::kBfloat16);
  EXPECT_EQ(PlanDecode(p, {89, 128, 99 << 10}).format, DecodeFormat::kNone);
  EXPECT_EQ(PlanDecode(p, {}).format, DecodeFormat::kNone) << "there is no device";
}

}  // namespace
}  // namespace pagefuse::cuda
