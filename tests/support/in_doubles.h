// SPDX-License-Identifier: Apache-2.0
// A graph of floats computed in doubles: what tells rounding from another function.
#pragma once

#include "absl/status/statusor.h"

#include "pagefuse/ir/graph/model.h"

namespace pagefuse::testing {

// The graph with every float but its inputs a double, its outputs among them. An error where some
// op has no doubles.
absl::StatusOr<Model> InDoubles(const Model& model);

}  // namespace pagefuse::testing
