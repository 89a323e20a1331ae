// SPDX-License-Identifier: Apache-2.0
// Attention with linear biases (ALiBi, arXiv 2108.12409): a slope of each head times the place of the
// key is added to its scores, as the exports of BLOOM, Falcon and MPT have it.
#pragma once

#include "absl/status/status.h"

#include "pagefuse/ir/graph/model.h"
#include "pagefuse/ops/infer/infer.h"
#include "pagefuse/passes/paging/grouped_attention.h"

namespace pagefuse {

// FailedPrecondition if the scores of a softmax that a sink is beside have a linear bias.
absl::Status CheckNoBiasBesideSink(Graph& graph, Node* softmax, const SymbolicContents& contents);

// For a graph that is being paged: takes the bias out of the scores, or out of the mask of an
// Attention,
//
//   Softmax (scores + slope[h] * place (key) + mask)          =>  Softmax (scores + mask)
//   Softmax ((scores + slope[h] * place (key)) * scale + mask)  =>  Softmax (scores * scale + mask)
//
// recognises what is an attention then, and notes their slopes in `extras`. The place
// may be the key's index, its distance to the query, how many ones of the attention mask come before
// it, or count from any start: a softmax does not see what all keys of a row have in common.
// FailedPrecondition naming the node that is no attention without its bias.
absl::Status LowerAlibiAttention(Model& model, SymbolicContents& contents,
                                 ExtrasOfAttention& extras);

}  // namespace pagefuse
