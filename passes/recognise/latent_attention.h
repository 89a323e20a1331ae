// SPDX-License-Identifier: Apache-2.0
// Attention over keys and values that are expanded from latent rows (DeepSeek-V2, section 2.1.2),
// read as such: what absorb-mla and the paging of latent rows share.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"

#include "pagefuse/passes/edit/graph_builder.h"

namespace pagefuse {

// The pieces of one attention over expanded rows.
//
//   latent [B, 1, T, L] or [B, T, L] -- MatMul [L, H (P + V)] or MatMulNBits -- Reshape -- Transpose
//     -- Split -- k_nope [B, H, T, P], v [B, H, T, V]
//   Attention (q [B, H, S, P + R], Concat (k_nope, Expand (k_pe [B, 1, T, R])), v)
struct LatentAttention {
  Value* latent = nullptr;
  const Node* expansion = nullptr;  // a product with a constant matrix, which may be codes
  Value* k_pe = nullptr;
  int64_t heads = 0, nope = 0, rope = 0, value = 0, latent_size = 0;
};

// NotFound if the keys are not joined of two parts; FailedPrecondition saying what else differs
// from the form above. Masks, pasts and further outputs are left to the caller.
absl::StatusOr<LatentAttention> FindLatentAttention(const Node& attention);

// Latent rows as the product that expands them multiplies them: over a matrix of bfloat16 they are
// rounded first.
Value* RowsAsExpanded(GraphBuilder& builder, const LatentAttention& match, Value* rows);

// What takes part in attention over the latent rows themselves.
struct AbsorbedOperands {
  Value* query = nullptr;  // [B, H, S, L + R]: Concat (q_nope W_UK, q_pe)
  Value* w_uv = nullptr;   // [H, L, V]: what the result [B, H, S, L] is multiplied by
};
// Codes of the expansion become floats, since it moves to both sides of attention.
absl::StatusOr<AbsorbedOperands> AbsorbExpansion(Graph& graph, GraphBuilder& builder,
                                                 const Node& attention,
                                                 const LatentAttention& match);

}  // namespace pagefuse
