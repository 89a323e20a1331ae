#include "pagefuse/passes/page/packed_heads.h"

namespace pagefuse {
namespace {

bool SwapsHeadsAndTokens(const Node* node) {
  if (!node->Is("Transpose")) return false;
  auto perm = node->IntsAttribute("perm", {});
  return perm.ok() && *perm == std::vector<int64_t>{0, 2, 1, 3};
}

bool NormalisesRows(const Node* node) {
  if (!node->Is("RMSNormalization")) return false;
  auto axis = node->IntAttribute("axis", -1);
  return axis.ok() && (*axis == -1 || *axis == 3);
}

void CopyAttributes(const Node* from, Node* to) {
  for (const auto& [name, attribute] : from->attributes()) to->SetAttribute(name, attribute);
  to->name = from->name;
  to->metadata = from->metadata;
}

}  // namespace

Value* PackedHeads(GraphBuilder& builder, Value* value, int64_t heads, int64_t head_size) {
  const Node* node = value->producer();
  auto rows = [&](Value* source) {
    return builder.Add("Reshape", {source, builder.Ints({-1, heads, head_size})});
  };
  if (node && SwapsHeadsAndTokens(node)) return rows(node->input(0));
  if (node && NormalisesRows(node)) {
    Value* packed = PackedHeads(builder, node->input(0), heads, head_size);
    Node* norm = builder.AddNode("", "RMSNormalization", {packed, node->input(1)}, 1);
    CopyAttributes(node, norm);
    norm->SetAttribute("axis", {.value = int64_t{-1}, .doc_string = {}, .unknown_fields = {}});
    return norm->output(0);
  }
  // With position ids the tables are indexed inside the op; only computed cos and sin are taken
  // apart here.
  if (node && node->Is("RotaryEmbedding") && !node->input(3)) {
    Value* packed = PackedHeads(builder, node->input(0), heads, head_size);
    Value* flat = builder.Add("Reshape", {packed, builder.Ints({1, -1, heads * head_size})});
    Node* rope = builder.AddNode("", "RotaryEmbedding", {flat, node->input(1), node->input(2)}, 1);
    CopyAttributes(node, rope);
    rope->SetAttribute("num_heads", {.value = heads, .doc_string = {}, .unknown_fields = {}});
    return rows(rope->output(0));
  }
  if (heads == 1) return rows(value);
  return rows(builder.Add("Transpose", {value}, "perm", std::vector<int64_t>{0, 2, 1, 3}));
}

}  // namespace pagefuse
