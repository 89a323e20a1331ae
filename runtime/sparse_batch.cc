#include "pagefuse/runtime/sparse_batch.h"

#include <algorithm>
#include <limits>
#include <string_view>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"

namespace pagefuse {
namespace {

constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();

absl::Status CheckStarts(std::span<const int32_t> starts) {
  if (starts.empty() || starts[0] != 0) {
    return absl::InvalidArgumentError(
        StrCat("query_start_loc: expected 0 first, got ",
               starts.empty() ? std::string("nothing") : StrCat(starts[0])));
  }
  for (size_t r = 1; r < starts.size(); ++r) {
    if (starts[r] >= starts[r - 1]) continue;
    return absl::InvalidArgumentError(StrCat("query_start_loc: falls from ", starts[r - 1], " to ",
                                             starts[r], " at request ", r - 1));
  }
  return absl::OkStatus();
}

absl::Status CheckLengths(std::span<const int32_t> starts, std::span<const int32_t> seq_lens) {
  PF_RETURN_IF_ERROR(CheckStarts(starts));
  if (seq_lens.size() + 1 != starts.size()) {
    return absl::InvalidArgumentError(StrCat("seq_lens: expected ", starts.size() - 1,
                                             " requests as query_start_loc has, got ",
                                             seq_lens.size()));
  }
  for (size_t r = 0; r < seq_lens.size(); ++r) {
    const int32_t query = starts[r + 1] - starts[r];
    if (seq_lens[r] >= query) continue;
    return absl::InvalidArgumentError(StrCat("seq_lens: expected at least the ", query,
                                             " query tokens of request ", r, ", got ",
                                             seq_lens[r]));
  }
  return absl::OkStatus();
}

absl::Status CheckOption(std::string_view name, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat(name, ": expected ", least, " to ", most, ", got ", value));
}

// What one request needs of the workspace of its chunk.
struct CompressedNeed {
  int64_t compressed = 0;
  int64_t gathered = 0;
};

absl::Status CheckOptions(const CompressedPrefillOptions& o) {
  PF_RETURN_IF_ERROR(CheckOption("window_size", o.window_size, 1, kMaxInt32));
  PF_RETURN_IF_ERROR(CheckOption("compress_ratio", o.compress_ratio, 1, kMaxInt32));
  PF_RETURN_IF_ERROR(CheckOption("max_model_len", o.max_model_len, 1, kMaxInt32));
  return CheckOption("max_tokens_per_step", o.max_tokens_per_step, 1, kMaxInt32);
}

}  // namespace

absl::StatusOr<std::vector<int32_t>> RequestOfTokens(std::span<const int32_t> query_start_loc) {
  PF_RETURN_IF_ERROR(CheckStarts(query_start_loc));
  std::vector<int32_t> requests(query_start_loc.back());
  for (size_t r = 0; r + 1 < query_start_loc.size(); ++r) {
    std::fill(requests.begin() + query_start_loc[r], requests.begin() + query_start_loc[r + 1],
              static_cast<int32_t>(r));
  }
  return requests;
}

absl::StatusOr<DecodeSplit> SplitDecodes(std::span<const int32_t> query_start_loc,
                                         int64_t threshold) {
  PF_RETURN_IF_ERROR(CheckStarts(query_start_loc));
  PF_RETURN_IF_ERROR(CheckOption("threshold", threshold, 1, kMaxInt32));
  const int64_t requests = static_cast<int64_t>(query_start_loc.size()) - 1;
  if (requests == 0) return DecodeSplit();
  const auto query_len = [&](int64_t r) {
    return int64_t{query_start_loc[r + 1]} - query_start_loc[r];
  };
  int64_t longest = 0;
  bool uniform = true;
  int64_t first_other = requests;
  for (int64_t r = requests - 1; r >= 0; --r) {
    longest = std::max(longest, query_len(r));
    uniform = uniform && (query_len(r) == query_len(0) || query_len(r) == 0);
    if (query_len(r) != query_len(0)) first_other = r;
  }
  DecodeSplit split;
  if (longest <= threshold && threshold == 1) {
    split.decodes = requests;
  } else if (query_len(0) > threshold) {
    split.decodes = 0;
  } else {
    split.decodes = uniform ? requests : first_other;
  }
  split.decode_tokens = query_start_loc[split.decodes];
  split.prefills = requests - split.decodes;
  split.prefill_tokens = query_start_loc[requests] - split.decode_tokens;
  split.decode_query_len = split.decodes > 0 ? query_len(0) : 0;
  return split;
}

SparseMode ChooseSparseMode(bool fp8_cache, int64_t num_heads) {
  if (!fp8_cache) return SparseMode::kBfloat16;
  return num_heads < kSeparateHeads ? SparseMode::kMixed : SparseMode::kSeparate;
}

absl::StatusOr<PrefillPlan> PlanPrefills(std::span<const int32_t> query_start_loc,
                                         std::span<const int32_t> seq_lens,
                                         const DecodeSplit& split, int64_t max_model_len) {
  PF_RETURN_IF_ERROR(CheckLengths(query_start_loc, seq_lens));
  // Workspace rows are int32.
  PF_RETURN_IF_ERROR(CheckOption("max_model_len", max_model_len, 1, kMaxInt32 / kWorkspaceModels));
  const int64_t requests = static_cast<int64_t>(seq_lens.size());
  PF_RETURN_IF_ERROR(CheckOption("decodes", split.decodes, 0, requests));
  PrefillPlan plan;
  plan.workspace_rows = kWorkspaceModels * max_model_len;
  plan.prefill_request_id.assign(query_start_loc.back(), -1);
  for (int64_t r = split.decodes; r < requests; ++r) {
    const int64_t prefill = r - split.decodes;
    const int64_t rows = seq_lens[r];
    if (rows > plan.workspace_rows) {
      return absl::ResourceExhaustedError(StrCat("seq_lens: request ", r, " has ", rows,
                                                 " tokens, the workspace ", plan.workspace_rows,
                                                 " rows"));
    }
    if (plan.chunks.empty() || plan.chunks.back().rows + rows > plan.workspace_rows) {
      plan.chunks.push_back({prefill, prefill, query_start_loc[r], query_start_loc[r], 0});
    }
    PrefillChunk& chunk = plan.chunks.back();
    plan.workspace_starts.push_back(static_cast<int32_t>(chunk.rows));
    chunk.end = prefill + 1;
    chunk.end_token = query_start_loc[r + 1];
    chunk.rows += rows;
    std::fill(plan.prefill_request_id.begin() + query_start_loc[r],
              plan.prefill_request_id.begin() + query_start_loc[r + 1],
              static_cast<int32_t>(prefill));
  }
  return plan;
}

absl::StatusOr<SparseBatch> MakeSparseBatch(std::span<const int32_t> query_start_loc,
                                            std::span<const int32_t> seq_lens,
                                            const SparseBatchOptions& options) {
  PF_RETURN_IF_ERROR(CheckLengths(query_start_loc, seq_lens));
  PF_RETURN_IF_ERROR(CheckOption("num_heads", options.num_heads, 1, kMaxInt32));
  SparseBatch batch;
  batch.mode = ChooseSparseMode(options.fp8_cache, options.num_heads);
  PF_ASSIGN_OR_RETURN(batch.request_of_token, RequestOfTokens(query_start_loc));
  PF_ASSIGN_OR_RETURN(batch.split, SplitDecodes(query_start_loc, options.threshold));
  if (batch.mode != SparseMode::kSeparate) return batch;
  PF_ASSIGN_OR_RETURN(batch.prefills,
                      PlanPrefills(query_start_loc, seq_lens, batch.split, options.max_model_len));
  return batch;
}

absl::StatusOr<CompressedPrefillPlan> PlanCompressedPrefills(
    std::span<const int32_t> query_start_loc, std::span<const int32_t> seq_lens,
    const CompressedPrefillOptions& options) {
  PF_RETURN_IF_ERROR(CheckLengths(query_start_loc, seq_lens));
  PF_RETURN_IF_ERROR(CheckOptions(options));
  const int64_t ratio = options.compress_ratio;
  CompressedPrefillPlan plan;
  plan.area = kCompressedPrefillRequests * ((options.max_model_len + ratio - 1) / ratio +
                                            options.window_size + options.max_tokens_per_step);
  CompressedNeed largest;  // of the chunk
  for (int64_t r = 0; r < static_cast<int64_t>(seq_lens.size()); ++r) {
    const int64_t query = int64_t{query_start_loc[r + 1]} - query_start_loc[r];
    const CompressedNeed need = {ratio == 1 ? 0 : seq_lens[r] / ratio,
                                 query + std::min(seq_lens[r] - query, options.window_size - 1)};
    plan.gather_lens.push_back(static_cast<int32_t>(need.gathered));
    if (need.compressed + need.gathered > plan.area) {
      return absl::ResourceExhaustedError(StrCat("seq_lens: request ", r, " needs ",
                                                 need.compressed + need.gathered,
                                                 " rows, the workspace has ", plan.area));
    }
    const CompressedNeed joined = {std::max(largest.compressed, need.compressed),
                                   std::max(largest.gathered, need.gathered)};
    const int64_t count = plan.chunks.empty() ? 0 : r - plan.chunks.back().first;
    if (count == 0 || (count + 1) * (joined.compressed + joined.gathered) > plan.area) {
      plan.chunks.push_back({.first = r, .end = r, .first_token = query_start_loc[r]});
      largest = need;
    } else {
      largest = joined;
    }
    CompressedPrefillChunk& chunk = plan.chunks.back();
    chunk.end = r + 1;
    chunk.end_token = query_start_loc[r + 1];
    chunk.window_offset = largest.compressed;
    chunk.workspace_rows = largest.compressed + largest.gathered;
  }
  return plan;
}

}  // namespace pagefuse
