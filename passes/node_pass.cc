// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/node_pass.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/passes/edit/graph_edit.h"

namespace pagefuse {

absl::StatusOr<bool> NodePass::Run(Model& model, PassContext& context) const {
  bool changed = false;
  for (Node* node : NodesOf(*model.graph)) {
    PF_ASSIGN_OR_RETURN(const bool rewritten, Rewrite(*model.graph, node, context.contents));
    if (!rewritten) continue;
    context.contents.clear();
    PF_RETURN_IF_ERROR(InferShapes(model, &context.contents));
    PF_RETURN_IF_ERROR(context.Rewrote(model, name()));
    changed = true;
  }
  return changed;
}

}  // namespace pagefuse
