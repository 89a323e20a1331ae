// SPDX-License-Identifier: Apache-2.0
// decompose-microsoft-ops: decomposes the ops of com.microsoft that hold an attention, or the embedding
// before it, into standard ops, so that analyses see projection, heads, masks and caches.
//
//   y, present = com.microsoft.Attention <num_heads = H> (x, w, b, mask_index, past)
//     =>  q, k, v = heads of the three parts of x w + b
//         y, .. = Attention (q, k, v, Where (mask_index, 0, -10000), past[0], past[1])

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/microsoft/matmul_nbits.h"
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

// Products of which an operand has its batch dims between rows and columns.
bool MovesBatch(const Node& node) {
  return node.Is("FusedMatMul", "com.microsoft") &&
         (IntOr(node, "transBatchA", 0) != 0 || IntOr(node, "transBatchB", 0) != 0);
}

// Weights whose columns are in groups of any order.
bool HasGroups(const Node& node) {
  return node.Is("MatMulNBits", "com.microsoft") &&
         node.input(microsoft_ops::kNBitsGroupIndex) != nullptr;
}

bool IsDecomposed(const Node& node) {
  return IsAnyOf(node,
                 {"Attention", "DynamicQuantizeMatMul", "EmbedLayerNormalization",
                  "MatMulIntegerToFloat", "MultiHeadAttention", "RotaryEmbedding"},
                 "com.microsoft") ||
         IsProductOfHeads(node) || MovesBatch(node) || HasGroups(node);
}

// Drops the groups of columns that are the blocks of the weight, as they are without. True if there
// were some.
absl::StatusOr<bool> DropGroupsInOrder(Model& model, PassContext& context) {
  bool changed = false;
  for (Node* node : NodesOf(*model.graph)) {
    if (!HasGroups(*node)) continue;
    PF_ASSIGN_OR_RETURN(const auto sizes, microsoft_ops::NBitsSizes::Of(*node));
    const Tensor* groups = ConstantOf(node->input(microsoft_ops::kNBitsGroupIndex));
    if (!groups || !microsoft_ops::AreGroupsInOrder(*groups, sizes)) continue;
    node->SetInput(microsoft_ops::kNBitsGroupIndex, nullptr);
    changed = true;
    PF_RETURN_IF_ERROR(context.Rewrote(model, kName));
  }
  return changed;
}

absl::StatusOr<bool> DecomposeAll(Model& model, PassContext& context) {
  // Decompositions are texts of the canonical opset.
  if (OpsetOf(model.opset_imports, "") < kCanonicalOpset) return false;
  PF_RETURN_IF_ERROR(InferShapes(model));
  PF_ASSIGN_OR_RETURN(const bool dropped, DropGroupsInOrder(model, context));
  const auto decompose = [&](Node* node) {
    return Decompose(node, model.opset_imports, context.contents);
  };
  // It holds an Attention.
  const auto is_quantised = [](const Node& node) { return node.Is("QAttention", "com.microsoft"); };
  PF_ASSIGN_OR_RETURN(const bool widened,
                      DecomposeNodes(model, context, kName, is_quantised, decompose));
  if (widened) PF_RETURN_IF_ERROR(InferShapes(model));
  PF_ASSIGN_OR_RETURN(const bool decomposed,
                      DecomposeNodes(model, context, kName, IsDecomposed, decompose));
  return dropped || widened || decomposed;
}

}  // namespace

std::unique_ptr<Pass> DecomposeMicrosoftOps() {
  return MakePass(
      kName,
      "Decomposes Attention, QAttention, MultiHeadAttention, RotaryEmbedding, EmbedLayerNormalization, "
      "products of 8-bit codes, the FusedMatMul of attention heads or with transBatchA or "
      "transBatchB, and MatMulNBits with columns in any order of com.microsoft into standard ops.",
      DecomposeAll);
}

}  // namespace pagefuse
