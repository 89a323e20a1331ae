// SPDX-License-Identifier: Apache-2.0
#include <optional>
#include <vector>

#include "pagefuse/passes/edit/graph_builder.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/lower/body_rewrites.h"

namespace pagefuse {
namespace {

// The type to compute the node in; nullopt where its own will do.
std::optional<DataType> WiderType(const Node& node) {
  const DataType type = node.num_outputs() > 0 ? node.output(0)->dtype() : DataType::kUndefined;
  if (node.Is("BitShift") && type == DataType::kUint16) return DataType::kUint32;
  const bool is_half = type == DataType::kFloat16 || type == DataType::kBfloat16;
  if (is_half && (node.Is("Where") || node.Is("Pad"))) return DataType::kFloat;
  return std::nullopt;
}

Value* CastBefore(Graph& graph, Node* anchor, Value* x, DataType type) {
  GraphBuilder builder(graph, anchor, "wide");
  Value* y = builder.Cast(x, type);
  y->set_dtype(type);
  return y;
}

void Widen(Graph& graph, Node* node, DataType type) {
  const DataType narrow = node->output(0)->dtype();
  std::vector<Value*> inputs;
  for (Value* input : node->inputs()) {
    const bool widens = input != nullptr && input->dtype() == narrow;
    inputs.push_back(widens ? CastBefore(graph, node, input, type) : input);
  }
  Value* wide = graph.AddValue(graph.UniqueName("wide"), type);
  Node* copy = graph.AddNode(node->domain(), node->op_type(), inputs, {wide}, node);
  copy->name = wide->name();
  for (const auto& [name, attribute] : node->attributes()) copy->SetAttribute(name, attribute);
  ReplaceNode(node, CastBefore(graph, node, wide, narrow));
}

}  // namespace

void WidenTypes(Graph& graph) {
  for (Node* node : NodesOf(graph)) {
    for (Graph* subgraph : node->Subgraphs()) WidenTypes(*subgraph);
    if (const std::optional<DataType> type = WiderType(*node)) Widen(graph, node, *type);
  }
}

}  // namespace pagefuse
