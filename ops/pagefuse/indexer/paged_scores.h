// What ops of index scores over a paged cache share: PagedMqaLogits and PagedIndexerTopK. The ports
// of both begin with these, in this order.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/kernels/indexer/mqa_logits.h"
#include "pagefuse/ops/kernel.h"
#include "pagefuse/ops/op_def.h"
#include "pagefuse/ops/pagefuse/indexer/paged_mqa_logits_body.h"

namespace pagefuse::pagefuse_ops {

inline constexpr int kPagedQ = 0, kPagedKeys = 1, kPagedWeights = 2, kPagedLengths = 3,
                     kPagedTables = 4, kPagedWidth = 5, kPagedStarts = 6;

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
