// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <limits>

#include "pagefuse/ops/kernels/cuda/paged_decode.h"

namespace pagefuse::cuda {
namespace {

// Bytes of an element; 0: the format is none of the decode kernels'.
int ElementBytes(DecodeFormat format) {
  switch (format) {
    case DecodeFormat::kFloat:
      return 4;
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
      if (p.element == DataType::kFloat) return DecodeFormat::kFloat;
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

// Of a power of two.
int Log2(int power) { return std::countr_zero(static_cast<unsigned>(power)); }

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
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  return batch.block_size == kPageTokens && batch.group() <= kDecodeGroup &&
         batch.num_sequences <= kDecodeSequences && batch.num_ranges == 0 &&
         batch.qq_bias == nullptr && batch.alibi_slopes == nullptr && batch.num_blocks > 0 &&
         // Kernels count in 32 bits.
         batch.num_blocks <= kMost && batch.num_sequences * batch.table_columns <= kMost;
}

// How many KV heads a CTA takes and how many CTAs share a sequence and a chunk of them; 0: as many heads as it has warps for, any sequences.
struct Sharing {
  int heads = 0, cluster = 0;
};

// Pages that the token of a sequence sees at most.
int64_t MostPages(const AttentionBatch& batch) {
  const int64_t window = batch.rules.sliding_window;
  if (window == 0) return batch.table_columns;
  return std::min(batch.table_columns, window / kPageTokens + 2);
}
// The same of a CTA of a cluster.
int64_t MostPagesOf(const AttentionBatch& batch, int cluster) {
  return (MostPages(batch) + cluster - 1) / cluster;
}

// As many stages as there is room for and use, in whole phases; none if there is no room for two. Clusters give back the rest.
bool PlaceStages(const AttentionBatch& batch, int room, DecodePlan& plan) {
  plan.queries_at = DecodeHeaderBytes(plan.listed);
  plan.results_at = plan.queries_at + plan.query_bytes;
  plan.stages_at = plan.results_at + plan.result_bytes;
  const int before = plan.stages_at;
  const int round_bytes = plan.phases * plan.stage_bytes;
  int rounds = std::min((room - before) / round_bytes, kDecodeStages / plan.phases);
  if (plan.cluster > 0) {
    const int64_t pages = MostPagesOf(batch, plan.cluster);
    const int64_t used = std::max<int64_t>((pages + plan.phases - 1) / plan.phases, 2);
    rounds = static_cast<int>(std::min<int64_t>(rounds, used));
    plan.shared_bytes -= room - (before + rounds * round_bytes);
  }
  plan.stages = rounds * plan.phases;
  return rounds >= 2;
}

bool CutRows(const PagedAttention& p, Sharing sharing, DecodePlan& plan) {
  const AttentionBatch& batch = p.batch;
  const int bytes = ElementBytes(plan.format);
  const int heads = static_cast<int>(batch.num_kv_heads);
  const int row_bytes = static_cast<int>(batch.head_size) * bytes;
  if (batch.head_size != 64 && batch.head_size != 128 && batch.head_size != 256) return false;
  if (row_bytes % kSpanBytes != 0) return false;
  if (!TakesRows(p.keys, row_bytes, heads) || !TakesRows(p.values, row_bytes, heads)) return false;
  plan.warps = DecodeWarps(plan.format, static_cast<int>(batch.head_size), plan.exact);
  const int steps = static_cast<int>(batch.head_size) / 16;
  plan.query_bytes = plan.warps * steps * 32 * SharedPartBytes(plan.format, plan.exact);
  plan.heads = sharing.heads > 0 ? std::min(sharing.heads, plan.warps) : plan.warps;
  while (heads % plan.heads != 0) plan.heads /= 2;
  plan.heads_log2 = Log2(plan.heads);
  plan.chunks = heads / plan.heads;
  plan.phases = plan.warps / plan.heads;
  plan.group = static_cast<int>(batch.group());
  plan.cluster = sharing.cluster;
  plan.cluster_log2 = Log2(std::max(plan.cluster, 1));
  if (plan.cluster > 0) {
    plan.received_rows = (plan.heads * plan.group + plan.cluster - 1) / plan.cluster;
  }
  plan.listed = sharing.cluster > 0 ? 1 : static_cast<int>(batch.num_sequences);
  if (plan.phases > 1 || plan.cluster > 0) {
    plan.result_bytes = DecodeResultBytes(plan.warps, plan.group, static_cast<int>(batch.head_size),
                                          plan.received_rows * plan.cluster);
  }
  const PageLayout layout = {bytes, static_cast<int>(batch.head_size), plan.heads};
  const int scales = p.keys.scales != nullptr ? 2 * kPageTokens * heads * 4 : 0;
  plan.stage_bytes =
      (2 * layout.bytes() + scales + kStageAlignment - 1) / kStageAlignment * kStageAlignment;
  return PlaceStages(batch, plan.shared_bytes - kStageAlignment, plan);
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
  plan.heads_log2 = Log2(heads);
  plan.chunks = 1;
  plan.group = static_cast<int>(batch.group());
  plan.phases = plan.warps / heads;
  plan.listed = static_cast<int>(batch.num_sequences);
  plan.stage_bytes = kPageTokens * heads * slot;
  plan.query_bytes = (static_cast<int>(batch.num_heads) * (2 * 128 + 4) + 127) / 128 * 128;
  // Around the table there may be no room for one stage more.
  const int table = TableBytes(p.slot.key_bits);
  const int lost = table > 0 ? plan.stage_bytes : 0;
  return PlaceStages(batch, plan.shared_bytes - table - lost - kStageAlignment, plan);
}

// For so much shared memory.
DecodePlan Cut(const PagedAttention& p, DecodeFormat format, Sharing sharing, int shared_bytes) {
  DecodePlan plan;
  plan.format = format;
  plan.shared_bytes = shared_bytes;
  plan.exact = p.compute_type == DataType::kFloat;
  const bool fits =
      format == DecodeFormat::kTurboQuant ? CutSlots(p, plan) : CutRows(p, sharing, plan);
  return fits ? plan : DecodePlan{};
}

// Clusters for few and short sequences: all CTAs run at once, and none has more than kMostBytes to read. Of the chunks with which that is so the
// smallest are taken, which give the most CTAs.
DecodePlan CutForClusters(const PagedAttention& p, DecodeFormat format,
                          const DecodeDevice& device) {
  constexpr int64_t kMostBytes = 128 << 10;
  constexpr int kMostHeads = 8;  // of a CTA
  const AttentionBatch& batch = p.batch;
  // Multiprocessors that hold whole clusters.
  const int64_t most_ctas = device.multiprocessors / kDecodeCluster * kDecodeCluster;
  for (int heads = 1; heads <= kMostHeads; heads *= 2) {
    DecodePlan plan = Cut(p, format, {heads, 1}, device.shared_bytes);
    const int64_t shares = batch.num_sequences * plan.chunks;
    if (plan.cluster == 0 || shares > most_ctas) continue;
    int cluster = 1;
    while (cluster < kDecodeCluster && shares * cluster * 2 <= most_ctas) cluster *= 2;
    if (MostPagesOf(batch, cluster) * plan.stage_bytes > kMostBytes) return {};
    plan = Cut(p, format, {heads, cluster}, device.shared_bytes);
    plan.ctas = static_cast<int>(shares * cluster);
    return plan;
  }
  return {};
}

// CTAs whose parts of a row fit the join.
int MostJoinedCtas(const PagedAttention& p, const DecodePlan& plan) {
  const auto head_size = static_cast<int>(p.batch.head_size);
  const int part_bytes = DecodeJoinBytes(head_size, plan.parts_of_head(), 0);
  return (kJoinShared - DecodeJoinBytes(head_size, 0, kJoinWarps)) / part_bytes;
}

}  // namespace

DecodePlan PlanDecode(const PagedAttention& p, const DecodeDevice& device) {
  if (device.capability < 90 || !TakesBatch(p.batch) || !IsAligned(p.query, 0) ||
      !IsAligned(p.output, 0)) {
    return {};
  }
  const DecodeFormat format = FormatOf(p);
  if (format == DecodeFormat::kNone) return {};
  if (format != DecodeFormat::kTurboQuant) {
    const DecodePlan plan = CutForClusters(p, format, device);
    if (plan.cluster > 0) return plan;
  }
  DecodePlan plan = Cut(p, format, {}, device.shared_bytes);
  if (plan.format == DecodeFormat::kNone) return {};
  constexpr int64_t kMostPages = int64_t{1} << 22;
  const int64_t pages = p.batch.num_sequences * p.batch.table_columns * plan.chunks;
  if (pages > kMostPages) return {};
  const int most_ctas = std::min(device.multiprocessors, MostJoinedCtas(p, plan));
  plan.ctas = static_cast<int>(std::clamp<int64_t>(pages, 1, most_ctas));
  return plan;
}

DecodeWorkspace DecodeWorkspaceOf(const PagedAttention& p, const DecodePlan& plan) {
  DecodeWorkspace work;
  if (plan.cluster > 0) return work;
  work.partial_values = plan.partials(p.batch) * p.batch.head_size;
  work.partial_sums = plan.partials(p.batch) * 2;
  work.starts = p.batch.num_sequences + 1;
  return work;
}

}  // namespace pagefuse::cuda
