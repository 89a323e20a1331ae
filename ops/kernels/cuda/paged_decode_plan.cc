// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "pagefuse/ops/kernels/cuda/paged_decode.h"

namespace pagefuse::cuda {
namespace {

// Bytes of an element; 0: the format is none of the decode kernels'.
int ElementBytes(DecodeFormat format) {
  switch (format) {
    case DecodeFormat::kBfloat16:
    case DecodeFormat::kFloat16:
      return 2;
    case DecodeFormat::kInt8:
    case DecodeFormat::kE4M3:
      return 1;
    default:
      return 0;
  }
}

DecodeFormat FormatOf(const PagedAttention& p) {
  const bool exact = p.compute_type == DataType::kFloat;
  if (p.has_f8_query()) return DecodeFormat::kNone;
  if (p.is_turboquant) {
    const bool known = p.slot.value_bits == 4 || p.slot.key_bits == 3;
    // The rotated query is rounded to half here: more than a query of half allows.
    const bool suits = known && p.compute_type == DataType::kBfloat16;
    return suits ? DecodeFormat::kTurboQuant : DecodeFormat::kNone;
  }
  switch (p.mode) {
    case KvQuantMode::kNone:
      // Other pairs of types round rows to that of the query.
      if (p.element != p.compute_type && !exact) return DecodeFormat::kNone;
      if (p.element == DataType::kBfloat16) return DecodeFormat::kBfloat16;
      return p.element == DataType::kFloat16 ? DecodeFormat::kFloat16 : DecodeFormat::kNone;
    case KvQuantMode::kInt8PerTokenHead:
      return DecodeFormat::kInt8;
    case KvQuantMode::kFp8PerTensor:
    case KvQuantMode::kFp8PerTokenHead:
      return DecodeFormat::kE4M3;
    default:
      return DecodeFormat::kNone;
  }
}

bool IsAligned(const void* data, int64_t stride) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0 && stride % 16 == 0;
}

// Pages that tensor copies and bulk copies can describe.
bool TakesRows(const CacheRows& rows, int64_t row_bytes, int64_t heads) {
  const auto& stride = rows.data_strides;
  if (stride.head != row_bytes || stride.row != row_bytes * heads) return false;
  if (!IsAligned(rows.data, stride.block) || stride.row % 16 != 0) return false;
  if (rows.scales == nullptr) return true;
  return rows.scale_strides.head == 4 && rows.scale_strides.row == 4 * heads &&
         IsAligned(rows.scales, rows.scale_strides.block);
}

bool TakesBatch(const AttentionBatch& batch) {
  return batch.block_size == kPageTokens && batch.group() <= kDecodeGroup &&
         batch.num_sequences <= kDecodeSequences && batch.num_ranges == 0 &&
         batch.qq_bias == nullptr && batch.alibi_slopes == nullptr && batch.num_blocks > 0;
}

// As many stages as there is room for, in whole phases; none if there is no room for two.
bool PlaceStages(const AttentionBatch& batch, int room, DecodePlan& plan) {
  const int header = DecodeHeaderBytes(static_cast<int>(batch.num_sequences)) + plan.query_bytes;
  int rounds = (room - header) / (plan.phases * plan.stage_bytes);
  rounds = std::min(rounds, kDecodeStages / plan.phases);
  plan.stages = rounds * plan.phases;
  return rounds >= 2;
}

bool CutRows(const PagedAttention& p, DecodePlan& plan) {
  const AttentionBatch& batch = p.batch;
  const int bytes = ElementBytes(plan.format);
  const int heads = static_cast<int>(batch.num_kv_heads);
  const int row_bytes = static_cast<int>(batch.head_size) * bytes;
  if (batch.head_size != 64 && batch.head_size != 128 && batch.head_size != 256) return false;
  if (row_bytes % kSpanBytes != 0) return false;
  if (!TakesRows(p.keys, row_bytes, heads) || !TakesRows(p.values, row_bytes, heads)) return false;
  plan.warps = DecodeWarps(plan.format, static_cast<int>(batch.head_size), plan.exact);
  if (DecodeParts(plan.format, plan.exact) == 3) {
    const int steps = static_cast<int>(batch.head_size) / 16;
    plan.query_bytes = plan.warps * steps * 32 * kThirdPartBytes;
  }
  plan.heads = plan.warps;
  while (heads % plan.heads != 0) plan.heads /= 2;
  plan.chunks = heads / plan.heads;
  plan.phases = plan.warps / plan.heads;
  const PageLayout layout = {bytes, static_cast<int>(batch.head_size), plan.heads};
  const int scales = p.keys.scales != nullptr ? 2 * kPageTokens * heads * 4 : 0;
  plan.stage_bytes =
      (2 * layout.bytes() + scales + kStageAlignment - 1) / kStageAlignment * kStageAlignment;
  return PlaceStages(batch, kDecodeShared - kStageAlignment, plan);
}

// A table of centroids, which lies at a multiple of its size; SlotFormat has it for kernels.
int TableBytes(int key_bits) { return key_bits == 8 ? 0 : key_bits == 4 ? 1 << 16 : 1 << 13; }

// Slots: whole pages, whose codes begin at 0 or 2 mod 4, which the head alone decides.
bool CutSlots(const PagedAttention& p, DecodePlan& plan) {
  const AttentionBatch& batch = p.batch;
  const int heads = static_cast<int>(batch.num_kv_heads);
  const auto slot = static_cast<int>(p.keys.data_strides.head);
  if (batch.head_size != 128 || (p.rotation != nullptr && p.slot.has_centroids())) return false;
  if (heads > 8 || (heads & (heads - 1)) != 0) return false;
  if (p.keys.data_strides.row != int64_t{slot} * heads || heads * slot % 4 != 0) return false;
  if (!IsAligned(p.keys.data, p.keys.data_strides.block)) return false;
  if (p.slot.key_bits == 8 && slot % 4 != 0) return false;  // keys are read by words
  plan.warps = DecodeWarps(plan.format, 128, plan.exact);
  plan.heads = heads;
  plan.chunks = 1;
  plan.phases = plan.warps / heads;
  plan.stage_bytes = kPageTokens * heads * slot;
  plan.query_bytes = (static_cast<int>(batch.num_heads) * (2 * 128 + 4) + 127) / 128 * 128;
  // Around the table there may be no room for one stage more.
  const int table = TableBytes(p.slot.key_bits);
  const int lost = table > 0 ? plan.stage_bytes : 0;
  return PlaceStages(batch, kDecodeShared - table - lost - kStageAlignment, plan);
}

}  // namespace

DecodePlan PlanDecode(const PagedAttention& p, int capability, int multiprocessors) {
  DecodePlan plan;
  if (capability < 90 || !TakesBatch(p.batch) || !IsAligned(p.query, 0)) return {};
  plan.format = FormatOf(p);
  plan.exact = p.compute_type == DataType::kFloat;
  if (plan.format == DecodeFormat::kNone) return {};
  const bool fits = plan.format == DecodeFormat::kTurboQuant ? CutSlots(p, plan) : CutRows(p, plan);
  if (!fits) return {};
  constexpr int64_t kMostPages = int64_t{1} << 22;
  const int64_t pages = p.batch.num_sequences * p.batch.table_columns * plan.chunks;
  if (pages > kMostPages) return {};
  plan.ctas = static_cast<int>(std::clamp<int64_t>(pages, 1, multiprocessors));
  return plan;
}

DecodeWorkspace DecodeWorkspaceOf(const PagedAttention& p, const DecodePlan& plan) {
  DecodeWorkspace work;
  work.partial_values = plan.partials(p.batch) * p.batch.head_size;
  work.partial_sums = plan.partials(p.batch) * 2;
  work.starts = p.batch.num_sequences + 1;
  return work;
}

}  // namespace pagefuse::cuda
