// Metadata of a step for sparse latent attention: which requests decode and which prefill, and in
// which pieces prefills go through the bfloat16 workspace. DeepSeek-V3.2 (vLLM's
// FlashMLASparseMetadataBuilder) and V4.
//
// The inputs of a step of Q requests, decodes before prefills, their T tokens packed:
//   query_start_loc [Q + 1]   tokens of request r are [query_start_loc[r], query_start_loc[r + 1])
//   seq_lens        [Q]       tokens of request r so far, this step's included
//
// All functions are pure and thread-safe. InvalidArgument names the input and the request where a
// start is not 0, starts fall, lengths do not fit, or an option is out of range.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

namespace pagefuse {

// The number of each token's request: int32 [T], the input `req_id` of ReqIndexToSlot.
absl::StatusOr<std::vector<int32_t>> RequestOfTokens(std::span<const int32_t> query_start_loc);

// Requests [0, decodes) decode, the others prefill.
struct DecodeSplit {
  int64_t decodes = 0;
  int64_t decode_tokens = 0;
  int64_t prefills = 0;
  int64_t prefill_tokens = 0;
  // Query tokens of the first decode; all decodes have as many, or none (padding). 0: no decodes.
  int64_t decode_query_len = 0;

  bool operator==(const DecodeSplit&) const = default;
};

// Splits a batch so that decodes can be computed as [decodes, decode_query_len, ...]. With query
// lengths ql and `threshold` = 1 + speculative tokens:
//   all decode    if threshold is 1 and no ql is above it
//   all prefill   if ql[0] > threshold
//   all decode    if every ql is ql[0] or 0
//   otherwise the first request with ql != ql[0] and all behind it prefill
absl::StatusOr<DecodeSplit> SplitDecodes(std::span<const int32_t> query_start_loc,
                                         int64_t threshold);

// How sparse attention over a cache is computed.
enum class SparseMode {
  kBfloat16,  // bf16 cache: ReqIndexToSlot, one SparseMlaAttention
  kMixed,     // fp8 cache, few heads: the whole batch on the fp8 cache
  kSeparate,  // fp8 cache: decodes on the fp8 cache, prefills on a bf16 workspace, in chunks
};
// From kSeparateHeads heads on, filling the workspace costs less than decoding rows for each token.
inline constexpr int64_t kSeparateHeads = 32;
SparseMode ChooseSparseMode(bool fp8_cache, int64_t num_heads);

// Prefills [first, end), numbered from 0, that share the workspace at one time.
struct PrefillChunk {
  int64_t first = 0;
  int64_t end = 0;
  int64_t first_token = 0;  // of the batch; their block table rows are decodes + [first, end)
  int64_t end_token = 0;
  int64_t rows = 0;  // of the workspace: the sum of their seq_lens

  bool operator==(const PrefillChunk&) const = default;
};

// The prefills of SparseMode::kSeparate.
struct PrefillPlan {
  std::vector<int32_t> prefill_request_id;  // [T], -1 for decode tokens
  std::vector<int32_t> workspace_starts;    // [prefills], first row within the own chunk
  int64_t workspace_rows = 0;               // of the workspace that all chunks fit in
  std::vector<PrefillChunk> chunks;
};

// The workspace holds kWorkspaceModels * max_model_len rows; chunks take prefills in order while
// their seq_lens fit. For each chunk: MlaGatherUpconvert into the workspace, then
// SparseMlaAttention (bf16) of its tokens. ResourceExhausted naming the request if one alone does
// not fit.
inline constexpr int64_t kWorkspaceModels = 5;
absl::StatusOr<PrefillPlan> PlanPrefills(std::span<const int32_t> query_start_loc,
                                         std::span<const int32_t> seq_lens,
                                         const DecodeSplit& split, int64_t max_model_len);

struct SparseBatchOptions {
  bool fp8_cache = true;
  int64_t num_heads = 0;
  int64_t threshold = 1;  // 1 + speculative tokens
  int64_t max_model_len = 0;
};

// All of the above for one step. `prefills` is empty but for SparseMode::kSeparate.
struct SparseBatch {
  SparseMode mode = SparseMode::kBfloat16;
  std::vector<int32_t> request_of_token;
  DecodeSplit split;
  PrefillPlan prefills;
};
absl::StatusOr<SparseBatch> MakeSparseBatch(std::span<const int32_t> query_start_loc,
                                            std::span<const int32_t> seq_lens,
                                            const SparseBatchOptions& options);

// --- DeepSeek-V4: prefills over compressed rows and a sliding window ---

struct CompressedPrefillOptions {
  int64_t window_size = 0;
  int64_t compress_ratio = 1;  // 1: no compression, no compressed rows
  int64_t max_model_len = 0;
  int64_t max_tokens_per_step = 0;
};

// Requests [first, end) that share the workspace [end - first, workspace_rows, D] at one time, and
// the scalars of their CombineTopKWindow.
struct CompressedPrefillChunk {
  int64_t first = 0;
  int64_t end = 0;
  int64_t first_token = 0;
  int64_t end_token = 0;
  int64_t window_offset = 0;   // N: the largest number of compressed rows, seq_len / ratio
  int64_t workspace_rows = 0;  // M: N + the largest gather_len

  bool operator==(const CompressedPrefillChunk&) const = default;
};

struct CompressedPrefillPlan {
  // [Q]: rows of the sliding window that the request's query tokens see, query_len +
  // min(seq_len - query_len, window - 1).
  std::vector<int32_t> gather_lens;
  // Rows of the workspace: kCompressedPrefillRequests * (ceil(max_model_len / ratio) + window +
  // max_tokens_per_step).
  int64_t area = 0;
  std::vector<CompressedPrefillChunk> chunks;
};

// Chunks take requests in order while (requests in the chunk) * (largest compressed length +
// largest gather_len) <= area. The inputs are those of the prefills alone. ResourceExhausted naming
// the request if one alone does not fit.
inline constexpr int64_t kCompressedPrefillRequests = 4;
absl::StatusOr<CompressedPrefillPlan> PlanCompressedPrefills(
    std::span<const int32_t> query_start_loc, std::span<const int32_t> seq_lens,
    const CompressedPrefillOptions& options);

}  // namespace pagefuse
