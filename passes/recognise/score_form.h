// SPDX-License-Identifier: Apache-2.0
// Brings the scores of attention, from the product of queries and keys to the softmax, to one form.
#pragma once

#include "pagefuse/ops/infer/infer.h"

namespace pagefuse {

// Scales may stand anywhere: on queries, on keys, behind the product, behind a soft cap or a mask, as
// factors or divisors. Any number of masks is added or taken off, or chooses a low number for hidden
// keys, and what hides keys may be bounded by the lowest number. All of it becomes
//
//   Softmax (capped + mask)  or  Softmax (Where (mask, capped, low))   of one mask
//   capped = cap * Tanh (scaled / cap)                                 if there is a cap
//   scaled = scale * q k^T                                             if there is a scale
//
// over [B, H, S, L]. `node` is the softmax or, where heads are flattened for it, the Reshape that
// takes them apart again. False if they are in that form, or are no scores.
bool BringScoresToForm(Graph& graph, Node* node, const SymbolicContents& contents);

}  // namespace pagefuse
