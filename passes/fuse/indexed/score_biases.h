// SPDX-License-Identifier: Apache-2.0
// Reads what a paged attention adds to its masked scores: ALiBi (arXiv 2108.12409), and a bias
// among the queries of a sequence.
#pragma once

#include <optional>

#include "pagefuse/passes/fuse/indexed/attention_mask_ports.h"

namespace pagefuse {

struct ScoreBiases {
  std::optional<Element> slopes;   // of the heads
  bool root = false;               // - slope * sqrt (max (position - key, 0)), else slope * key
  Value* among_queries = nullptr;  // [Q, Q]: of query and key, both counted from the first query
};

// `shifts`: whether a number that is added to all scores of a row changes what is read of the match
// (log-sum-exps, a sink). FailedPrecondition naming the bias that is neither.
absl::StatusOr<ScoreBiases> ReadScoreBiases(IndexingAnalysis& reader, const AttentionMatch& match,
                                            const PagedAxes& axes,
                                            const AttentionMaskPorts& visible, bool shifts);

}  // namespace pagefuse
