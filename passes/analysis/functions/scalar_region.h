// SPDX-License-Identifier: Apache-2.0
// Elementwise functions of one tensor, read off the graph: `Cast(Clip(Round(x)))` of x, whatever
// stands between.
#pragma once

#include <functional>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"

#include "pagefuse/ir/graph/graph.h"
#include "pagefuse/passes/edit/graph_edit.h"

namespace pagefuse {

// Each element of `result` is one function of the element of `source` at the same place.
struct ScalarRegion {
  Value* source = nullptr;
  Value* result = nullptr;
  std::vector<const Node*> nodes;  // from source to result, in topological order
};

// The regions that end in `result`, from the shortest to the longest: one for each value that all
// paths from `result` to anything but constants of one element lead through.
std::vector<ScalarRegion> ScalarRegionsOf(Value* result, const OpsetImports& opsets);

// The nodes that some region may end with that holds a node of those that `wanted` tells, itself or
// another. One walk, where reading the regions of every node takes as many steps as they are long.
absl::flat_hash_set<const Node*> EndsOfRegionsWith(const std::function<bool(const Node&)>& wanted,
                                                   const Graph& graph, const OpsetImports& opsets);

// The function at `points`, a tensor [N] of the source's type.
absl::StatusOr<Tensor> EvaluateRegion(const ScalarRegion& region, const OpsetImports& opsets,
                                      const Tensor& points);

}  // namespace pagefuse
