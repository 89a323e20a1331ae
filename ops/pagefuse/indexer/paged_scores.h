// SPDX-License-Identifier: Apache-2.0
// What ops of index scores over a paged cache share: PagedMqaLogits and PagedIndexerTopK.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/ops/kernels/indexer/mqa_logits.h"
#include "pagefuse/ops/pagefuse/indexer/paged_mqa_logits_body.h"
#include "pagefuse/ops/schema/kernel.h"
#include "pagefuse/ops/schema/op_def.h"

namespace pagefuse::pagefuse_ops {

// The ports that both begin with.
inline constexpr Ports kPagedScorePorts({
    {"q", "TQ if format = bf16, else Q",
     "[T, H, D] if query_start_loc, else [B, n, H, D], D >= 1, D % unit = 0"},
    PortSpec("kv_cache", "TC if format = bf16, else uint8", "[NB, BS, 1, row] or [NB, BS, row]")
        .InBlocks(),
    {"weights", "float", "[rows, H]"},
    PortSpec("context_lens", "int32", "[B]").Metadata(),
    PortSpec("block_tables", "int32", "[B, MB]").Metadata(),
    PortSpec("max_model_len", "int64", "[] or [1]").Optional().Metadata(),
    PortSpec("query_start_loc", "int32", "[B + 1]").Optional().Metadata(),
});
inline constexpr int kPagedQ = kPagedScorePorts["q"], kPagedKeys = kPagedScorePorts["kv_cache"],
                     kPagedWeights = kPagedScorePorts["weights"],
                     kPagedLengths = kPagedScorePorts["context_lens"],
                     kPagedTables = kPagedScorePorts["block_tables"],
                     kPagedWidth = kPagedScorePorts["max_model_len"],
                     kPagedStarts = kPagedScorePorts["query_start_loc"];

// They and those of one op behind them.
template <size_t N>
consteval Ports<N + kPagedScorePorts.size()> WithPagedScorePorts(const PortSpec (&more)[N]) {
  PortSpec all[N + kPagedScorePorts.size()];
  std::copy(more, more + N,
            std::copy(std::begin(kPagedScorePorts.specs), std::end(kPagedScorePorts.specs), all));
  return Ports(all);
}

// Formats of keys: e4m3fn codes and a scale, numbers, e2m1 codes in groups.
inline constexpr char kKeysOfCodes[] = "fp8";
inline constexpr char kKeysOfNumbers[] = "bf16";
inline constexpr char kKeysOfFourBits[] = "mxfp4";

// "rows", "width" and what else the declared shapes of these ports name, their types, and the
// attributes format and ratio.
OpDef& DeclarePagedScores(OpDef& op);

// Lengths are within `width` columns and the block table, and used entries of the table are blocks.
absl::Status CheckPagedScores(const KernelArgs& args, int64_t width);
// Scores of checked arguments, without logits and what is filled of them: rows see the first
// (p + 1) / ratio keys.
absl::StatusOr<MqaLogitsProblem> PagedScores(const KernelArgs& args);
// max_model_len, or as many columns as the block table has room for.
int64_t PagedWidth(const KernelArgs& args);

absl::StatusOr<PagedMqaLogitsBody> PagedScoresBody(const Node& node);

}  // namespace pagefuse::pagefuse_ops
