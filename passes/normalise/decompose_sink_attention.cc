// SPDX-License-Identifier: Apache-2.0
// decompose-sink-attention: decomposes pagefuse.SinkAttention, which a graph has that was fused
// without pages before, so that paging finds its softmax. Keys and values that heads share are
// repeated as exporters repeat them:
//
//   y = pagefuse.SinkAttention (q [B, H, ..], k [B, G, T, D], v, mask, sinks)
//     =>  .. (q, Reshape (Expand (Unsqueeze (k, 2))) [B, H, T, D], ..)

#include "pagefuse/passes/edit/graph_builder.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/op_types.h"
#include "pagefuse/passes/function_pass.h"
#include "pagefuse/passes/normalise/decompose.h"
#include "pagefuse/passes/normalise/normalise.h"

namespace pagefuse {
namespace {

constexpr std::string_view kName = "decompose-sink-attention";
constexpr int kQuery = 0, kKey = 1, kValue = 2;

// [B, H, T, D] of the heads [B, G, T, D], each H / G times; null if sizes are not known.
Value* RepeatedHeads(Graph& graph, Node* node, Value* heads) {
  const auto& shape = heads->shape();
  const auto& wanted = node->input(kQuery)->shape();
  if (!shape || !wanted) return nullptr;
  const auto groups = (*shape)[1].constant(), all = (*wanted)[1].constant();
  const auto size = (*shape)[3].constant();
  if (!groups || !all || !size || *groups == 0 || *all % *groups != 0) return nullptr;
  if (*groups == *all) return heads;
  GraphBuilder builder(graph, node, heads->name());
  Value* beside = builder.Add("Unsqueeze", {heads, builder.Ints({2})});
  Value* each = builder.Add("Expand", {beside, builder.Ints({1, 1, *all / *groups, 1, 1})});
  Value* repeated = builder.Add("Reshape", {each, builder.Ints({0, *all, -1, *size})});
  repeated->set_dtype(heads->dtype());
  repeated->set_shape(Shape{(*shape)[0], Dim(*all), (*shape)[2], Dim(*size)});
  return repeated;
}

absl::Status Expand(Model& model, Node* node, SymbolicContents& contents) {
  Value* key = node->input(kKey);
  Value* value = node->input(kValue);
  Value* keys = RepeatedHeads(*model.graph, node, key);
  Value* values = value == key ? keys : RepeatedHeads(*model.graph, node, value);
  if (!keys || !values) return absl::FailedPreconditionError("its heads are not known");
  node->SetInput(kKey, keys);
  node->SetInput(kValue, values);
  return Decompose(node, model.opset_imports, contents);
}

bool IsSinkAttention(const Node& node) { return node.Is("SinkAttention", "pagefuse"); }

absl::StatusOr<bool> ExpandAll(Model& model, PassContext& context) {
  if (OpsetOf(model.opset_imports, "") < kCanonicalOpset) return false;
  return DecomposeNodes(model, context, kName, IsSinkAttention,
                        [&](Node* node) { return Expand(model, node, context.contents); });
}

}  // namespace

std::unique_ptr<Pass> DecomposeSinkAttention() {
  return MakePass(kName, "Decomposes pagefuse.SinkAttention into standard ops.", ExpandAll);
}

}  // namespace pagefuse
