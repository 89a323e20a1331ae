// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/edit/graph_index.h"

#include "pagefuse/base/str_cat.h"

namespace pagefuse {

void GraphIndex::Rebuild(const Graph& graph) {
  positions_.clear();
  by_type_.clear();
  owners_.clear();
  positions_.reserve(graph.nodes().size());
  int64_t position = 0;
  for (const auto& node : graph.nodes()) Add(node.get(), position++);
}

void GraphIndex::Add(Node* node, int64_t position) {
  positions_[node] = position;
  by_type_[node->op_type()].push_back(node);
  for (const Graph* subgraph : node->Subgraphs()) owners_[subgraph] = node;
}

int64_t GraphIndex::position(const Node* node) const {
  auto it = positions_.find(node);
  return it == positions_.end() ? -1 : it->second;
}

const Node* GraphIndex::owner(const Graph* subgraph) const {
  auto it = owners_.find(subgraph);
  return it == owners_.end() || !alive(it->second) ? nullptr : it->second;
}

const std::vector<Node*>& GraphIndex::nodes(std::string_view op_type) const {
  static const auto* none = new std::vector<Node*>();
  auto it = by_type_.find(AbslView(op_type));
  return it == by_type_.end() ? *none : it->second;
}

}  // namespace pagefuse
