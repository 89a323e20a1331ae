// Attention that is written out with a sink, a score of each head that takes probability and has no
// value (gpt-oss; arXiv 2309.17453), as a site that can be paged.
#pragma once

#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/ir/model.h"
#include "pagefuse/ops/infer.h"
#include "pagefuse/passes/page/grouped_attention.h"

namespace pagefuse {

// A softmax over scores and a sink, of which the sink's part is cut off.
struct SinkSite {
  Node* softmax = nullptr;
  Node* cut = nullptr;
  Node* sum = nullptr;  // of values, behind the cut
  Value* scores = nullptr;
  Value* sinks = nullptr;  // beside the scores
};
std::optional<SinkSite> SinkSiteAt(Node* softmax, const SymbolicContents& contents);
// One number for each head, [H], of what stands beside scores [B, H, S, T]; FailedPrecondition if
// it depends on more.
absl::StatusOr<Value*> SinksByHead(Graph& graph, const SinkSite& site,
                                   const SymbolicContents& contents);

// For a graph that is being paged: takes the sinks out of the softmax,
//
//   Slice (Softmax (Concat (scores, sinks)), all but the last)  =>  Softmax (scores)
//
// recognises what is an attention then, and adds its nodes to `sites` with their sinks. Where that is
// none, the node is named: the graph means something else by then.
absl::Status LowerSinkAttention(Model& model, SymbolicContents& contents,
                                GroupedAttentionSites& sites);

}  // namespace pagefuse
