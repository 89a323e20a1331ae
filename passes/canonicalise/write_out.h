// Ops in the words of their decompositions.
#pragma once

#include "absl/status/status.h"

#include "pagefuse/ops/infer.h"
#include "pagefuse/ops/op_def.h"

namespace pagefuse {

// Puts the nodes of the op's decomposition, a text of the canonical opset, in place of a node of it.
// FailedPrecondition if it has none for such a node.
absl::Status WriteOut(Node* node, const OpDef& op, SymbolicContents& contents);

}  // namespace pagefuse
