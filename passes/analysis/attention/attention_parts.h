// SPDX-License-Identifier: Apache-2.0
// Declares the parts in which an attention is read: its scores, its query, and the op as a whole.
#pragma once

#include "absl/status/status.h"

#include "pagefuse/passes/analysis/attention/attention_match.h"

namespace pagefuse {

// x of Where (condition, x, 0): weights, keys or values that are 0 where their key is hidden. Adds
// what holds where x is kept to `kept`.
absl::StatusOr<Element> KeptElement(IndexingAnalysis& reader, const Element& element,
                                    Conditions& kept);

// All factors but one, and the number.
void AddFactors(const Factors& from, size_t except, Factors& to);

// The query of a product over `match.e`; its numbers and those of keys go into the scale.
void ReadQuery(IndexingAnalysis& reader, const Element& query, AttentionMatch& match);

// Scores of the keys `match.n`: sets scale, cap, sink, mask, biases, keys and query. `axis`: the one
// that the softmax runs along. `kept_keys`: where keys are not 0.
absl::Status ReadScores(IndexingAnalysis& reader, const Element& scores, int axis,
                        Conditions& kept_keys, AttentionMatch& match);

// ONNX's Attention, whose result the match's output is.
absl::Status ReadAttentionOp(IndexingAnalysis& reader, AttentionMatch& match);

}  // namespace pagefuse
