// SPDX-License-Identifier: Apache-2.0
// Finds the type that a graph computes in, which says how exact its results can be.
#pragma once

#include "pagefuse/ir/graph/graph.h"

namespace pagefuse {

// The coarsest of bfloat16, float16, float and double that a node gives as a function of the
// graph's inputs, subgraphs included; kUndefined if none does. Weights that are stored in a narrow
// type and cast before they are used do not count. Types are those known: infer them first.
DataType ComputeType(const Graph& graph);

}  // namespace pagefuse
