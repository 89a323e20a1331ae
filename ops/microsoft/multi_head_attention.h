// SPDX-License-Identifier: Apache-2.0
// MultiHeadAttention of com.microsoft: ports and forms, shared by inference and decomposition.
#pragma once

#include <optional>

#include "absl/status/statusor.h"

#include "pagefuse/ops/schema/op_def.h"

namespace pagefuse::microsoft_ops {

enum MhaInput {
  kMhaQuery,          // [B, S, H * D], or [B, S, H, 3, D] with key and value in it
  kMhaKey,            // [B, L, H * D], [B, H, L, D], or [B, L, H, 2, D] with the value in it
  kMhaValue,          // [B, L, H * Dv], or [B, H, L, Dv]
  kMhaBias,           // [H * D + H * D + H * Dv], added to query, key and value
  kMhaKeyPadding,     // int32 [B]: keys of each sequence; [B, T] or [B, S, T]: 1 where seen
  kMhaAttentionBias,  // [B or 1, H or 1, S, T]
  kMhaPastKey,        // [B, H, P, D]
  kMhaPastValue,      // [B, H, P, Dv]
};

// How query, key and value come.
enum class MhaForm {
  kSeparate,   // three tensors of rank 3
  kHeads,      // key and value of rank 4, [B, H, L, D]
  kPackedKv,   // key of rank 5 holds the value
  kPackedQkv,  // query of rank 5 holds both
};

// The form that the ranks of the inputs tell; nullopt if they are none of them.
std::optional<MhaForm> MhaFormOf(int query_rank, int key_rank, int value_rank);

// The op in standard ones: heads, masks, ONNX's Attention. FailedPrecondition if its shapes do not
// tell the form.
absl::StatusOr<std::string> DecomposeMha(const Node& node);

}  // namespace pagefuse::microsoft_ops
