// SPDX-License-Identifier: Apache-2.0
// An index of the nodes of a graph, by op type and in topological order, which rules keep up to
// date while they rewrite.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"

#include "pagefuse/ir/graph/graph.h"

namespace pagefuse {

class GraphIndex {
 public:
  explicit GraphIndex(const Graph& graph) { Rebuild(graph); }

  // Counts the nodes anew; needed after nodes were moved.
  void Rebuild(const Graph& graph);
  // A node that was put in at about the place of `position`.
  void Add(Node* node, int64_t position);
  void Remove(const Node* node) { positions_.erase(node); }

  // True for nodes of this graph that were not erased.
  bool alive(const Node* node) const { return positions_.contains(node); }
  // Grows along the node list; equal for a new node and the one whose place it took. -1 for nodes
  // of other graphs.
  int64_t position(const Node* node) const;
  // The node of this graph among whose attributes `subgraph` is; null if there is none.
  const Node* owner(const Graph* subgraph) const;
  // Nodes of that type in any domain, in order; may hold erased ones (see alive).
  const std::vector<Node*>& nodes(std::string_view op_type) const;
  int64_t num_nodes() const { return static_cast<int64_t>(positions_.size()); }

 private:
  absl::flat_hash_map<const Node*, int64_t> positions_;
  absl::flat_hash_map<std::string, std::vector<Node*>> by_type_;
  absl::flat_hash_map<const Graph*, const Node*> owners_;
};

// The indices of several graphs, each made when it is first asked for.
class GraphIndices {
 public:
  GraphIndex& Of(const Graph& graph) {
    std::unique_ptr<GraphIndex>& index = by_graph_[&graph];
    if (index == nullptr) index = std::make_unique<GraphIndex>(graph);
    return *index;
  }
  void clear() { by_graph_.clear(); }

 private:
  absl::flat_hash_map<const Graph*, std::unique_ptr<GraphIndex>> by_graph_;
};

}  // namespace pagefuse
