// SPDX-License-Identifier: Apache-2.0
// The structural invariants of a graph, checked after import and after every pass.
#pragma once

#include "absl/status/status.h"

#include "pagefuse/ir/graph/model.h"

namespace pagefuse {

// InvalidArgument naming the first violation, node and value: use lists and producers agree; every
// input is defined before its reader (or in an enclosing graph); one producer a value; unique
// names; initialisers have the type and shape of their value; graph outputs are defined; functions
// do not call each other in a circle; domains that nodes use are imported. That ops are known is
// ops' business: see VerifyOps.
absl::Status Verify(const Model& model);
absl::Status Verify(const Graph& graph);
// That an initialiser has the type and a shape of its value.
absl::Status VerifyInitializer(const Value& value);

}  // namespace pagefuse
