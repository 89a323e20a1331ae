// SPDX-License-Identifier: Apache-2.0
// Attention of com.microsoft, as ONNX Runtime's tools write it for GPT-2 and BERT: ports and sizes,
// shared by inference and decomposition.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/ops/schema/op_def.h"

namespace pagefuse::microsoft_ops {

enum AttentionInput {
  kAttentionInput,       // [B, S, K]
  kAttentionWeights,     // [K, Nq + Nk + Nv], Nq = Nk
  kAttentionBias,        // [Nq + Nk + Nv]
  kAttentionMask,        // int32 [B], [2 B], [B, T], [B, S, T], [B, 1, S, T] or [B, 1, max, max]
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

// Channels that each head of queries and keys is rotated in, 0 without do_rotary; all of `head_size`
// where the node does not say. InvalidArgument naming the attribute if they do not fit.
absl::StatusOr<Dim> RotatedChannels(const Node& node, const Dim& head_size);

// The angle by which place 1 turns each of the pairs of `rotated` channels.
std::vector<float> RotaryFrequencies(int64_t rotated);

// The op in standard ones: projection, heads, ONNX's Attention.
absl::StatusOr<std::string> DecomposeAttention(const Node& node);

}  // namespace pagefuse::microsoft_ops
