// SPDX-License-Identifier: Apache-2.0
// Cuts a part of a graph out as a graph of its own.
#pragma once

#include "absl/container/flat_hash_set.h"

#include "pagefuse/ir/graph/model.h"

namespace pagefuse {

// The nodes of `keep` with what they read: constants stay constants, all else becomes an input, in
// the order of first use; inputs of the graph come first, in theirs. What others read, or the
// caller, becomes an output; where nobody does, what none of the nodes reads. Functions stay.
Model CutModel(const Model& model, const absl::flat_hash_set<const Node*>& keep);

}  // namespace pagefuse
