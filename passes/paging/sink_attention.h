// SPDX-License-Identifier: Apache-2.0
// Attention that is written out with a sink, a score of each head that takes probability and has no
// value (gpt-oss; arXiv 2309.17453), as a match that can be paged.
#pragma once

#include "absl/status/status.h"

#include "pagefuse/ir/graph/model.h"
#include "pagefuse/ops/infer/infer.h"
#include "pagefuse/passes/analysis/attention/sink_match.h"
#include "pagefuse/passes/paging/grouped_attention.h"

namespace pagefuse {

// For a graph that is being paged: takes the sinks out of the softmax,
//
//   Slice (Softmax (Concat (scores, sinks)), all but the last)  =>  Softmax (scores)
//
// recognises what is an attention then, and notes their sinks in `extras`. Where that is none, the node
// is named: the graph means something else by then.
absl::Status LowerSinkAttention(Model& model, SymbolicContents& contents,
                                ExtrasOfAttention& extras);

}  // namespace pagefuse
