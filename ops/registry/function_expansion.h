// SPDX-License-Identifier: Apache-2.0
// Computes how large a model becomes when calls of functions are replaced by the bodies.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

#include "pagefuse/ir/graph/model.h"
#include "pagefuse/ops/registry/registry.h"

namespace pagefuse {

// Nodes that bodies may add to a model. Functions that call each other twice double at each level:
// 40 of them, 2.5 KB, are 2^40 nodes.
inline constexpr int64_t kMaxExpandedNodes = int64_t{1} << 18;
// Calls within calls.
inline constexpr int kMaxCallDepth = 64;

// ResourceExhausted naming the function that adds the most, and how many nodes there would be, if
// there are more than kMaxExpandedNodes or calls in calls are nested deeper than kMaxCallDepth.
// Calls of ops that are registered stay calls and count as one node. InvalidArgument if a function
// calls itself.
absl::Status CheckExpansion(const Model& model, const OpRegistry& registry = OpRegistry::Global());

// The error of one function.
absl::Status TooManyNodes(const Function& function, int64_t nodes);

}  // namespace pagefuse
