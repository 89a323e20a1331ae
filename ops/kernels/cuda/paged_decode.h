// SPDX-License-Identifier: Apache-2.0
// Paged attention of a token a sequence by tensor cores: Hopper and newer, pages of 16 tokens, up to eight query heads a KV head.
#pragma once

#include <cstdint>

#include "pagefuse/ops/kernels/cuda/fragments.h"
#include "pagefuse/ops/kernels/cuda/paged_attention.h"

namespace pagefuse::cuda {

enum class DecodeFormat {
  kNone,      // the plain kernel's
  kBfloat16,  // rows as they are
  kFloat16,
  kInt8,        // int8_per_token_head
  kE4M3,        // fp8_per_tensor, fp8_per_token_head
  kTurboQuant,  // slots of the presets
};

// How a call is cut, by what no length changes.
struct DecodePlan {
  DecodeFormat format = DecodeFormat::kNone;
  bool exact = false;  // queries are float: they and weights are fed in parts
  int warps = 0;       // of a CTA that compute; one more loads
  int heads = 0;       // KV heads of a CTA, a warp each
  int chunks = 0;      // of so many heads
  int phases = 0;      // pages that a CTA computes at a time
  int stages = 0;      // pages in its memory, a multiple of the phases
  int stage_bytes = 0;
  int query_bytes = 0;  // shared memory for queries, or what they have no registers for
  int ctas = 0;

  constexpr int64_t slots(const AttentionBatch& batch) const {
    return batch.num_sequences * chunks + ctas;
  }
  // Partial results: of each slot, warp and query head of a group.
  constexpr int64_t partials(const AttentionBatch& batch) const {
    return slots(batch) * warps * batch.group();
  }
};

// Query heads of a KV head that a warp takes, and sequences whose pages a CTA can count.
inline constexpr int kDecodeGroup = 8;
inline constexpr int kDecodeSequences = 1000;
// Pages in a CTA's memory at most.
inline constexpr int kDecodeStages = 64;
// Shared memory of a CTA in all; stages are aligned to kStageAlignment.
inline constexpr int kDecodeShared = 227 << 10;
inline constexpr int kStageAlignment = 1024;
// Barriers, and where each sequence's pages begin.
constexpr int DecodeHeaderBytes(int sequences) {
  constexpr int kBarriers = 2 * 8 * kDecodeStages;
  const int bytes = kBarriers + 8 * sequences + 4 * (sequences + 1);
  return (bytes + kStageAlignment - 1) / kStageAlignment * kStageAlignment;
}

// Warps that compute, by how many registers they need.
constexpr int DecodeWarps(DecodeFormat format, int head_size, bool exact) {
  if (format == DecodeFormat::kTurboQuant) return 16;
  return head_size > 128 || (exact && format == DecodeFormat::kBfloat16) ? 4 : 8;
}
// Parts that a query is fed in: halves hold 11 bits of a float, bfloat16 8. The third one lies in shared memory.
constexpr int DecodeParts(DecodeFormat format, bool exact) {
  if (!exact) return 1;
  return format == DecodeFormat::kBfloat16 ? 3 : 2;
}
// Of a lane in each step of 16 channels: two registers.
inline constexpr int kThirdPartBytes = 8;

// `capability` of the device, 90 is 9.0. The caller knows that no sequence has more than one token.
DecodePlan PlanDecode(const PagedAttention& p, int capability, int multiprocessors);
// Of the current device.
int ComputeCapability();

// Of `partial_values`, `partial_sums`, and of where sequences' pages begin.
struct DecodeWorkspace {
  int64_t rotated_query = 0, partial_values = 0, partial_sums = 0, starts = 0;
};
DecodeWorkspace DecodeWorkspaceOf(const PagedAttention& p, const DecodePlan& plan);

// What launches give where the driver cannot describe the pages: cudaErrorNotSupported.
inline constexpr Error kNoDecode = 801;

// starts: [sequences + 1].
Error LaunchPagedDecode(const PagedAttention& p, const DecodePlan& plan, int32_t* starts,
                        Stream stream);

// Its parts, one for each format.
Error LaunchDecodeBfloat16(const PagedAttention& p, const DecodePlan& plan, int32_t* starts,
                           Stream stream);
Error LaunchDecodeFloat16(const PagedAttention& p, const DecodePlan& plan, int32_t* starts,
                          Stream stream);
Error LaunchDecodeInt8(const PagedAttention& p, const DecodePlan& plan, int32_t* starts,
                       Stream stream);
Error LaunchDecodeE4M3(const PagedAttention& p, const DecodePlan& plan, int32_t* starts,
                       Stream stream);
Error LaunchDecodeTurboQuant(const PagedAttention& p, const DecodePlan& plan, int32_t* starts,
                             Stream stream);
Error LaunchDecodeTurboQuant3(const PagedAttention& p, const DecodePlan& plan, int32_t* starts,
                              Stream stream);
Error LaunchDecodeJoin(const PagedAttention& p, const DecodePlan& plan, const int32_t* starts,
                       Stream stream);

}  // namespace pagefuse::cuda
