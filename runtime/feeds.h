// SPDX-License-Identifier: Apache-2.0
// What a caller feeds, against what the inputs of a graph declare.
#pragma once

#include <vector>

#include "absl/status/status.h"

#include "pagefuse/ir/graph/graph.h"

namespace pagefuse {

// `feeds` by position among `inputs`, undefined where the initialiser is taken. InvalidArgument
// naming an input whose type, rank or sizes are others, or a symbol that means two sizes.
absl::Status CheckFeeds(const std::vector<Value*>& inputs, const std::vector<Tensor>& feeds);

}  // namespace pagefuse
