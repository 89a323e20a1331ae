// SPDX-License-Identifier: Apache-2.0
// Checks that all nodes of a model have the inputs and outputs that their ops require.
#pragma once

#include "absl/status/status.h"

#include "pagefuse/ir/graph/model.h"
#include "pagefuse/ops/registry/registry.h"

namespace pagefuse {

// InvalidArgument naming the first node that leaves out what its op requires, in subgraphs and
// functions too: what passes rely on where nothing is inferred. A node of an op that is known in
// later versions only must have what the oldest of them requires, but for the inputs that were
// attributes once. Nodes of unknown ops may have any.
absl::Status VerifyPorts(const Model& model, const OpRegistry& registry = OpRegistry::Global());

}  // namespace pagefuse
