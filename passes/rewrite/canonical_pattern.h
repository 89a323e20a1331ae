// SPDX-License-Identifier: Apache-2.0
// Patterns go through the same rewrites as graphs, before they are looked for.
#pragma once

#include "absl/status/status.h"

#include "pagefuse/ir/graph/model.h"

namespace pagefuse {

// The passes that make sense for a pattern, until nothing changes. Shapes that cannot be inferred
// stay unknown. These passes are above this room: the pipeline defines the function
// (pipeline/canonical_pattern.cc).
absl::Status CanonicalizePattern(Model& model);

}  // namespace pagefuse
