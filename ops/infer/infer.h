// SPDX-License-Identifier: Apache-2.0
// Symbolic shape inference over whole graphs.
#pragma once

#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"

#include "pagefuse/ir/graph/model.h"
#include "pagefuse/ops/registry/registry.h"

namespace pagefuse {

// Symbolic contents of small integer values (shapes and what is computed from them):
// `Shape(x)[1:2]` is [seq].
using SymbolicContents = absl::flat_hash_map<const Value*, std::vector<Dim>>;

// Infers types and shapes of all values of the graph and its subgraphs, in order, and writes them
// to the values. A declared shape is refined, never contradicted: InvalidArgument naming the node
// if inference disagrees with numbers in the file. Unknown ops (without a function) leave their
// outputs as declared. A size that inputs and an output of the graph call by a name of its own and
// that is computed as a sum of others becomes that sum wherever it stands. The body of a function is inferred once for each kind of call;
// ResourceExhausted as CheckExpansion.
absl::Status InferShapes(Model& model, SymbolicContents* contents = nullptr,
                         const OpRegistry& registry = OpRegistry::Global());

}  // namespace pagefuse
