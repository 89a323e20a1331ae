// Attention of com.microsoft, as ONNX Runtime's tools write it for GPT-2 and BERT: ports and sizes,
// shared by inference, decomposition and kernels.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

#include "pagefuse/ops/op_def.h"

namespace pagefuse::microsoft_ops {

enum AttentionInput {
  kAttentionInput,       // [B, S, K]
  kAttentionWeights,     // [K, Nq + Nk + Nv], Nq = Nk
  kAttentionBias,        // [Nq + Nk + Nv]
  kAttentionMask,        // int32 [B], [2 B], [B, T] or [B, S, T]
  kAttentionPast,        // [2, B, H, P, D]
  kAttentionScoreBias,   // [B or 1, H or 1, S, T]
  kAttentionPastLength,  // not supported
};

// Columns of query (and key) and of value among `all` of the weights, as far as these are known.
// InvalidArgument naming what does not fit.
struct ProjectedColumns {
  Dim query, value;
};
absl::StatusOr<ProjectedColumns> ProjectedColumnsOf(const Node& node, const Dim& all,
                                                    int64_t heads);

// The op in standard ones: projection, heads, ONNX's Attention.
absl::StatusOr<DecompositionVariant> DecomposeAttention(const Node& node);

absl::Status AttentionReference(KernelArgs& args);
absl::Status AttentionHwy(KernelArgs& args);

}  // namespace pagefuse::microsoft_ops
