// SPDX-License-Identifier: Apache-2.0
// Removes and replaces the inputs and outputs of a graph.
#pragma once

#include "pagefuse/ir/graph/graph.h"

namespace pagefuse {

// The value is no input any longer. It stays.
void RemoveInput(Graph& graph, const Value* input);
// The same of an output, however often it is one; of none if it is null.
void RemoveOutput(Graph& graph, const Value* output);
// Another value is output wherever `from` is.
void ReplaceOutput(Graph& graph, const Value* from, Value* to);

// For shapes in terms of sizes that no longer hold: those of all that nodes compute.
void ForgetShapes(Graph& graph);

}  // namespace pagefuse
