// SPDX-License-Identifier: Apache-2.0
// decompose-add-norm: decomposes pagefuse.AddNorm, which a graph has that was fused before, so that
// what looks for norms and sums of a residual finds them; join-norms joins them again.

#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/op_types.h"
#include "pagefuse/passes/function_pass.h"
#include "pagefuse/passes/normalise/decompose.h"
#include "pagefuse/passes/normalise/normalise.h"

namespace pagefuse {
namespace {

constexpr std::string_view kName = "decompose-add-norm";

bool IsAddNorm(const Node& node) { return node.Is("AddNorm", "pagefuse"); }

absl::StatusOr<bool> DecomposeAll(Model& model, PassContext& context) {
  if (OpsetOf(model.opset_imports, "") < kCanonicalOpset) return false;
  return DecomposeNodes(model, context, kName, IsAddNorm, [&](Node* node) {
    return Decompose(node, model.opset_imports, context.contents);
  });
}

}  // namespace

std::unique_ptr<Pass> DecomposeAddNorm() {
  return MakePass(kName, "Decomposes pagefuse.AddNorm into standard ops.", DecomposeAll);
}

}  // namespace pagefuse
