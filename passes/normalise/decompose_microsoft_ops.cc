// decompose-microsoft-ops: decomposes the ops of com.microsoft that hold an attention, or the embedding
// before it, into standard ops, so that analyses see projection, heads, masks and caches.
//
//   y, present = com.microsoft.Attention <num_heads = H> (x, w, b, mask_index, past)
//     =>  q, k, v = heads of the three parts of x w + b
//         y, .. = Attention (q, k, v, Where (mask_index, 0, -10000), past[0], past[1])

#include "pagefuse/base/status_macros.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/op_types.h"
#include "pagefuse/passes/function_pass.h"
#include "pagefuse/passes/normalise/decompose.h"
#include "pagefuse/passes/normalise/normalise.h"

namespace pagefuse {
namespace {

constexpr std::string_view kName = "decompose-microsoft-ops";

// Products of heads: of matrices that are no weights.
bool IsProductOfHeads(const Node& node) {
  if (!node.Is("FusedMatMul", "com.microsoft")) return false;
  for (int side : {0, 1}) {
    const Value* factor = node.input(side);
    if (factor->IsConstant() || !factor->shape() || factor->shape()->rank() != 4) return false;
  }
  return true;
}

bool IsDecomposed(const Node& node) {
  return IsAnyOf(node,
                 {"Attention", "EmbedLayerNormalization", "MultiHeadAttention", "RotaryEmbedding"},
                 "com.microsoft") ||
         IsProductOfHeads(node);
}

absl::StatusOr<bool> DecomposeAll(Model& model, PassContext& context) {
  // Decompositions are texts of the canonical opset.
  if (OpsetOf(model.opset_imports, "") < kCanonicalOpset) return false;
  PF_RETURN_IF_ERROR(InferShapes(model));
  return DecomposeNodes(model, context, kName, IsDecomposed, [&](Node* node) {
    return Decompose(node, model.opset_imports, context.contents);
  });
}

}  // namespace

std::unique_ptr<Pass> DecomposeMicrosoftOps() {
  return MakePass(
      kName,
      "Decomposes Attention, MultiHeadAttention, RotaryEmbedding, EmbedLayerNormalization and "
      "the FusedMatMul of attention heads of com.microsoft into standard ops.",
      DecomposeAll);
}

}  // namespace pagefuse
