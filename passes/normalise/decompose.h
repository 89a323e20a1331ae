// Replaces nodes by the decompositions of their ops.
#pragma once

#include "absl/status/status.h"

#include "pagefuse/passes/edit/graph_edit.h"

namespace pagefuse {

// Puts the nodes of the op's decomposition, a text of the canonical opset, in place of a node of it.
// FailedPrecondition if it has none for such a node, or these opsets have no such op.
absl::Status Decompose(Node* node, const OpsetImports& opsets, SymbolicContents& contents);

}  // namespace pagefuse
