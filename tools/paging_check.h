// What paging changes besides the graph: tokens are packed, caches have pages. So both graphs run as
// they are used, and their logits are compared.
#pragma once

#include <optional>

#include "absl/status/status.h"

#include "pagefuse/ir/model.h"
#include "pagefuse/passes/pipeline.h"

namespace pagefuse::tools {

inline constexpr int kPagingSteps = 3;

// Runs an export on two sequences of different lengths, the shorter one padded, and, where it takes
// pasts, two steps more; then what the pipeline makes of it, over its paged cache, with keys and
// values as they are. `tolerance` is absolute and relative; that of `check` if left out. InvalidArgument naming the step and the logits that differ; Unimplemented with
// the reason, and nothing compared, for a graph that is no decoder or is not paged.
absl::Status CheckPaging(const Model& model, const PipelineOptions& options,
                         std::optional<double> tolerance = {});

// The steps that CheckPaging takes: 1 for an export without pasts.
int PagingSteps(const Model& model);

}  // namespace pagefuse::tools
