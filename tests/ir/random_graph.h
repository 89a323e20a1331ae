// SPDX-License-Identifier: Apache-2.0
// Thousands of random edits of a graph with subgraphs, each of which keeps it valid.
#pragma once

#include <memory>
#include <random>
#include <vector>

#include "pagefuse/ir/graph/graph.h"

namespace pagefuse {

class GraphEditor {
 public:
  explicit GraphEditor(unsigned seed);

  // One random edit, of the graph or of one of its subgraphs.
  void Edit();
  const Graph& graph() const { return *graph_; }
  Graph& graph() { return *graph_; }
  // How often each kind of edit changed something.
  const std::vector<int>& counts() const { return counts_; }
  static constexpr int kKinds = 12;

 private:
  size_t Pick(size_t count);
  // This graph and those below it.
  static void Collect(Graph* graph, std::vector<Graph*>& graphs);
  Graph* AnyGraph();
  static std::vector<Node*> NodesOf(const Graph& graph);
  Node* AnyNode(const Graph& graph);  // null if there is none
  // What a node of `graph` before `before` (null: at the end) may read.
  std::vector<Value*> Visible(const Graph& graph, const Node* before);
  Value* AnyVisible(const Graph& graph, const Node* before);
  // The place in the top graph's order, subgraphs included, of what reads a value first or
  // computes it.
  static bool ComesBefore(const Graph& graph, const Node* a, const Node* b);
  static bool Reads(const Node& node, const Value* value);

  bool AddNode(Graph& graph);
  bool AddSubgraph(Graph& graph);
  bool EraseDead(Graph& graph);
  bool EraseOne(Graph& graph);
  bool ReplaceUses(Graph& graph);
  bool SetInput(Graph& graph);
  bool Move(Graph& graph);
  bool AddConstant(Graph& graph);
  bool ToggleOutput(Graph& graph);
  bool RenameValue(Graph& graph);
  bool DropSubgraph(Graph& graph);
  bool ReplaceByClone(Graph& graph);

  std::mt19937 random_;
  std::unique_ptr<Graph> graph_;
  std::vector<int> counts_ = std::vector<int>(kKinds, 0);
};

}  // namespace pagefuse
