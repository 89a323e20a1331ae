// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/paging/packed_heads.h"

#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/ports.h"

namespace pagefuse {
namespace {

bool SwapsHeadsAndTokens(const Node* node) {
  if (!node->Is("Transpose")) return false;
  auto perm = node->IntsAttribute("perm", {});
  return perm.ok() && *perm == std::vector<int64_t>{0, 2, 1, 3};
}

bool NormalisesRows(const Node* node) {
  if (!node->Is("RMSNormalization")) return false;
  const auto axis = node->IntAttribute("axis", -1);
  const auto& shape = node->input(0)->shape();
  return axis.ok() && (*axis == -1 || (shape && *axis == shape->rank() - 1));
}

// The norm over rows of `size` that `value` is a view of, or null. Whatever stands before the rows
// may be split or joined by the view.
const Node* NormBehindViews(const Value* value, int64_t size) {
  const Node* node = value->producer();
  while (node && (node->Is("Reshape") || node->Is("Unsqueeze") || node->Is("Squeeze"))) {
    node = node->input(0)->producer();
  }
  if (!node || !NormalisesRows(node)) return nullptr;
  const auto& shape = node->output(0)->shape();
  const auto& weight = node->input(1)->shape();
  if (!weight || weight->rank() != 1) return nullptr;
  return shape && shape->back(0).constant() == size ? node : nullptr;
}

}  // namespace

Value* PackedHeads(GraphBuilder& builder, Value* value, int64_t heads, int64_t head_size) {
  const Node* node = value->producer();
  auto rows = [&](Value* source) { return builder.Reshape(source, {-1, heads, head_size}); };
  // With the name and the attributes of a node and one of them otherwise.
  auto like = [&](const Node* old, std::vector<Value*> inputs, const NamedAttribute& attribute) {
    Node* copy = builder.AddNode("", old->op_type(), std::move(inputs), 1, {*old, {attribute}});
    TakePlace(*copy, *old);
    return copy->output(0);
  };
  auto normed = [&](const Node* norm, Value* packed) {
    return like(norm, {packed, norm->input(1)}, {"axis", -1});
  };
  if (node && SwapsHeadsAndTokens(node)) {
    const Node* norm = NormBehindViews(node->input(0), head_size);
    return norm ? normed(norm, rows(norm->input(0))) : rows(node->input(0));
  }
  if (node && NormalisesRows(node)) {
    return normed(node, PackedHeads(builder, node->input(0), heads, head_size));
  }
  // With position ids the tables are indexed inside the op; only computed cos and sin are taken
  // apart here.
  if (node && node->Is("RotaryEmbedding") && !node->input(ports::RotaryEmbedding::kPositions)) {
    Value* packed = PackedHeads(builder, node->input(0), heads, head_size);
    Value* flat = builder.Reshape(packed, {1, -1, heads * head_size});
    return rows(like(node,
                     {flat, node->input(ports::RotaryEmbedding::kCos),
                      node->input(ports::RotaryEmbedding::kSin)},
                     {"num_heads", heads}));
  }
  return rows(heads == 1 ? value : builder.SwapHeadsAndTokens(value));
}

}  // namespace pagefuse
