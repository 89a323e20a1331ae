// SPDX-License-Identifier: Apache-2.0
// The keys that an indexer chooses for each token (DeepSeek-V3.2, section 2.1), read from the mask
// of an attention.
//
//   scores[b, s, t] = sum over h of weights[b, s, h] * max(0, query[b, s, h] . key[b, t])
//   chosen          = the places of TopK (scores + mask) along t
//   mask'           = mask where t is chosen, else so low that it hides the key
//
// mask' is read by element, so that it does not matter how it is spelled: a choice between the mask
// and a number, or a sum with zeros scattered among such numbers.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"

#include "pagefuse/ops/infer/infer.h"
#include "pagefuse/passes/analysis/indexing/indexing_analysis.h"
#include "pagefuse/passes/edit/graph_builder.h"

namespace pagefuse {

// Tensors to compute the scores of, built from what the graph has.
struct KeySelection {
  Value* mask = nullptr;     // [B or 1, 1, S, T]: hides keys before any are chosen
  Value* query = nullptr;    // [B, S, H, D]
  Value* weights = nullptr;  // [B, S, H]
  Value* key = nullptr;      // [B, S, D], of the new tokens
  Value* past = nullptr;     // a graph input [B, P, D]; null without one
  Value* keys = nullptr;     // both of them joined, as the graph gives them back; null without past
  int64_t heads = 0, size = 0;
  int64_t most = 0;  // keys chosen for a token, or all if there are fewer
};

// What the mask of an attention chooses; nodes are built by `builder`. NotFound if it scatters no
// chosen places; FailedPrecondition saying what differs from the form above.
absl::StatusOr<KeySelection> ReadKeySelection(GraphBuilder& builder, Value* mask,
                                              const SymbolicContents& contents);

// The k of a TopK over `all` keys: a number, or that and the number of keys, whichever is less.
absl::StatusOr<int64_t> MostChosen(IndexingAnalysis& reader, const Node& topk, const Dim& all);

}  // namespace pagefuse
