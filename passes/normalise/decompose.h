// SPDX-License-Identifier: Apache-2.0
// Replaces nodes by the decompositions of their ops.
#pragma once

#include <functional>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/pass.h"

namespace pagefuse {

// Puts the nodes of the op's decomposition, a text of the canonical opset, in place of a node of it.
// FailedPrecondition if it has none for such a node, or these opsets have no such op.
absl::Status Decompose(Node* node, const OpsetImports& opsets, SymbolicContents& contents);

// Runs `decompose` on the nodes of the main graph that `takes`; where it fails, the pass notes why. True
// if one was replaced.
absl::StatusOr<bool> DecomposeNodes(Model& model, PassContext& context, std::string_view pass,
                                    bool (*takes)(const Node&),
                                    const std::function<absl::Status(Node*)>& decompose);

}  // namespace pagefuse
