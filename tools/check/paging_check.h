// Compares the logits of a model before and after paging. Paging changes more than the graph, since
// tokens are packed and caches have pages, so both graphs run in the way in which each is used.
#pragma once

#include <optional>

#include "absl/status/statusor.h"

#include "pagefuse/ir/graph/model.h"
#include "pagefuse/passes/pipeline/pipeline.h"

namespace pagefuse::tools {

// Runs an export on two sequences of different lengths, side by side with the shorter one padded or,
// where it cannot tell padding from tokens, one after the other, and, where it takes pasts, two steps
// more; then what the pipeline makes of it, over its paged cache, with keys and values as they are.
// `tolerance` is absolute and relative; that of `check` if left out. InvalidArgument naming the step
// and the logits that differ; Unimplemented with the reason, and nothing compared, for a graph that
// is no decoder or is not paged. Gives the number of steps.
absl::StatusOr<int> CheckPaging(const Model& model, const PipelineOptions& options,
                                std::optional<double> tolerance = {});

}  // namespace pagefuse::tools
