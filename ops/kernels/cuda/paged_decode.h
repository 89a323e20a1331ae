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
  kFloat,
  kInt8,        // int8_per_token_head
  kE4M3,        // fp8_per_tensor, fp8_per_token_head
  kTurboQuant,  // slots of the presets
};

// How a call is cut, by what no length changes.
struct DecodePlan {
  DecodeFormat format = DecodeFormat::kNone;
  bool exact = false;  // queries are float: they and weights are fed in parts
  int warps = 0;       // of a CTA that compute; one more loads
  int heads = 0;       // KV heads of a CTA, a warp each: a power of two
  int heads_log2 = 0;
  int chunks = 0;  // of so many heads
  int phases = 0;  // pages that a CTA computes at a time
  int group = 0;   // query heads of a KV head
  int stages = 0;  // pages in its memory, a multiple of the phases
  int stage_bytes = 0;
  int query_bytes = 0;   // shared memory for queries, or what they have no registers for
  int result_bytes = 0;  // for results that warps join there; 0: each leaves its own in memory
  int queries_at = 0;    // where these begin in shared memory
  int results_at = 0;
  int stages_at = 0;
  int shared_bytes = 0;  // in all
  int ctas = 0;
  // CTAs that share a sequence and a chunk and join their results at once: for few and short sequences. 0: CTAs share a list of all pages, and
  // another kernel joins.
  int cluster = 0;
  int cluster_log2 = 0;
  int received_rows =
      0;  // rows (KV head of the CTA, head of its group) that a CTA of a cluster joins at most, each with a part of every CTA
  int listed = 0;  // sequences whose pages a CTA counts: its own, or all

  constexpr int64_t slots(const AttentionBatch& batch) const {
    return batch.num_sequences * chunks + ctas;
  }
  // What a CTA leaves of a piece: a part of each warp, or of each of its heads, for the query heads of a group.
  constexpr int parts() const { return result_bytes > 0 ? heads : warps; }
  constexpr int parts_of_head() const { return parts() / heads; }
  constexpr int64_t partials(const AttentionBatch& batch) const {
    return slots(batch) * parts() * batch.group();
  }
};

// Query heads of a KV head that a warp takes, and sequences whose pages a CTA can count.
inline constexpr int kDecodeGroup = 8;
inline constexpr int kDecodeSequences = 1000;
// Pages in a CTA's memory at most.
inline constexpr int kDecodeStages = 64;
// CTAs of a cluster at most: what every device takes.
inline constexpr int kDecodeCluster = 8;
// Of stages in shared memory.
inline constexpr int kStageAlignment = 1024;
// Barriers of stages and of what other CTAs of a cluster send, and where each sequence's pages begin.
inline constexpr int kReceivedBarrier = 2 * 8 * kDecodeStages;
inline constexpr int kSequenceTable = kReceivedBarrier + 8;
constexpr int DecodeHeaderBytes(int sequences) {
  const int bytes = kSequenceTable + 8 * sequences + 4 * (sequences + 1);
  return (bytes + kStageAlignment - 1) / kStageAlignment * kStageAlignment;
}

// Values, reference and sum of each warp's rows, and of `received` parts of rows.
constexpr int DecodeResultBytes(int warps, int group, int head_size, int received) {
  const int bytes = (warps * group + received) * (4 * head_size + 8);
  return (bytes + kStageAlignment - 1) / kStageAlignment * kStageAlignment;
}

// The join of a row: up to so many warps, in the shared memory that every kernel may have.
inline constexpr int kJoinWarps = 16;
inline constexpr int kJoinShared = (48 << 10) - 4 * kJoinWarps;
// Numbers and sums of parts, then values of each warp.
constexpr int DecodeJoinBytes(int head_size, int most_parts, int warps) {
  return most_parts * 16 + warps * head_size * 4;
}

// Warps that compute, by how many registers they need; of floats by how many pages their memory holds.
constexpr int DecodeWarps(DecodeFormat format, int head_size, bool exact) {
  if (format == DecodeFormat::kTurboQuant) return 16;
  if (format == DecodeFormat::kFloat) return 512 / head_size;
  return head_size > 128 || (exact && format == DecodeFormat::kBfloat16) ? 4 : 8;
}
// Parts that a query is kept in: halves hold 11 bits of a float, bfloat16 8. To float rows it is fed in parts too, made each time.
constexpr int DecodeParts(DecodeFormat format, bool exact) {
  if (!exact || format == DecodeFormat::kFloat) return 1;
  return format == DecodeFormat::kBfloat16 ? 3 : 2;
}
// Of a lane in each step of 16 channels, what lies in shared memory as registers do not hold it: queries to float rows, or a third part.
constexpr int SharedPartBytes(DecodeFormat format, bool exact) {
  if (format == DecodeFormat::kFloat) return 16;
  return DecodeParts(format, exact) == 3 ? 8 : 0;
}

struct DecodeDevice {
  int capability = 0;  // 90 is 9.0
  int multiprocessors = 0;
  int shared_bytes = 0;  // that a CTA may have
};
// The current one.
DecodeDevice CurrentDecodeDevice();

// None where the device has no room for two pages of each warp. The caller knows that no sequence has more than one token.
DecodePlan PlanDecode(const PagedAttention& p, const DecodeDevice& device);

// Of `partial_values`, `partial_sums`, and of where sequences' pages begin: all 0 where clusters join.
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
Error LaunchDecodeFloat(const PagedAttention& p, const DecodePlan& plan, int32_t* starts,
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
