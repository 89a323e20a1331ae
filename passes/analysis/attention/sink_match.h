// SPDX-License-Identifier: Apache-2.0
// Attention that is written out with a sink: a score of each head beside those of the keys, which
// takes probability and has no value.
#pragma once

#include <optional>

#include "absl/status/statusor.h"

#include "pagefuse/ir/graph/graph.h"
#include "pagefuse/ops/infer/infer.h"

namespace pagefuse {

// A softmax over scores and a sink, of which the sink's part is cut off.
struct SinkMatch {
  Node* softmax = nullptr;
  Node* cut = nullptr;
  Node* sum = nullptr;  // of values, behind the cut
  Value* scores = nullptr;
  Value* sinks = nullptr;  // beside the scores
};
std::optional<SinkMatch> SinkMatchAt(Node* softmax, const SymbolicContents& contents);
// One number for each head, [H], of what stands beside scores [B, H, S, T]; FailedPrecondition if
// it depends on more.
absl::StatusOr<Value*> SinksByHead(Graph& graph, const SinkMatch& match,
                                   const SymbolicContents& contents);

}  // namespace pagefuse
