// SPDX-License-Identifier: Apache-2.0
// Attention whose queries, keys and scores have their axes otherwise than [B, H, S, .]: of one head,
// [B, S, L], with heads behind tokens, or with queries and heads on one axis, as of multi-query
// attention, [B, S * H, L].
#pragma once

#include "pagefuse/ir/graph/graph.h"
#include "pagefuse/ops/infer/infer.h"

namespace pagefuse {

// At the product of probabilities and values: computes it from scores [B, H, S, L] and turns the
// result to where it was.
bool BringAxesToForm(Graph& graph, Node* node, const SymbolicContents& contents);

}  // namespace pagefuse
