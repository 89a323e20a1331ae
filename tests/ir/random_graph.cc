// SPDX-License-Identifier: Apache-2.0
#include "random_graph.h"

#include <algorithm>
#include <string>

namespace pagefuse {

GraphEditor::GraphEditor(unsigned seed) : random_(seed), graph_(std::make_unique<Graph>()) {
  graph_->name = "g";
  for (const char* name : {"x", "y", "z"}) graph_->AddInput(name, DataType::kFloat, Shape{2});
  AddNode(*graph_);
  graph_->AddOutput(graph_->nodes().back()->output(0));
}

size_t GraphEditor::Pick(size_t count) {
  return std::uniform_int_distribution<size_t>(0, count - 1)(random_);
}

void GraphEditor::Collect(Graph* graph, std::vector<Graph*>& graphs) {
  graphs.push_back(graph);
  for (const auto& node : graph->nodes()) {
    for (Graph* subgraph : node->Subgraphs()) Collect(subgraph, graphs);
  }
}

Graph* GraphEditor::AnyGraph() {
  std::vector<Graph*> graphs;
  Collect(graph_.get(), graphs);
  return graphs[Pick(graphs.size())];
}

std::vector<Node*> GraphEditor::NodesOf(const Graph& graph) {
  std::vector<Node*> nodes;
  for (const auto& node : graph.nodes()) nodes.push_back(node.get());
  return nodes;
}

Node* GraphEditor::AnyNode(const Graph& graph) {
  const std::vector<Node*> nodes = NodesOf(graph);
  return nodes.empty() ? nullptr : nodes[Pick(nodes.size())];
}

std::vector<Value*> GraphEditor::Visible(const Graph& graph, const Node* before) {
  std::vector<Value*> values;
  for (Value* value : graph.values()) {
    const bool given = value->is_input() || value->initializer() != nullptr;
    const bool computed = value->producer() != nullptr && value->producer() != before &&
                          (before == nullptr || ComesBefore(graph, value->producer(), before));
    if (given || computed) values.push_back(value);
  }
  if (graph.parent() == nullptr) return values;
  // The node around the subgraph.
  for (const auto& node : graph.parent()->nodes()) {
    const std::vector<Graph*> subgraphs = node->Subgraphs();
    if (std::count(subgraphs.begin(), subgraphs.end(), &graph) == 0) continue;
    for (Value* outer : Visible(*graph.parent(), node.get())) values.push_back(outer);
  }
  return values;
}

Value* GraphEditor::AnyVisible(const Graph& graph, const Node* before) {
  const std::vector<Value*> values = Visible(graph, before);
  return values[Pick(values.size())];
}

bool GraphEditor::ComesBefore(const Graph& graph, const Node* a, const Node* b) {
  for (const auto& node : graph.nodes()) {
    if (node.get() == b) return false;
    if (node.get() == a) return true;
  }
  return false;
}

bool GraphEditor::Reads(const Node& node, const Value* value) {
  const std::vector<Value*> reads = ValuesRead(node);
  return std::count(reads.begin(), reads.end(), value) > 0;
}

void GraphEditor::Edit() {
  using Kind = bool (GraphEditor::*)(Graph&);
  static constexpr Kind kEdits[kKinds] = {
      &GraphEditor::AddNode,     &GraphEditor::AddSubgraph,  &GraphEditor::EraseDead,
      &GraphEditor::EraseOne,    &GraphEditor::ReplaceUses,  &GraphEditor::SetInput,
      &GraphEditor::Move,        &GraphEditor::AddConstant,  &GraphEditor::ToggleOutput,
      &GraphEditor::RenameValue, &GraphEditor::DropSubgraph, &GraphEditor::ReplaceByClone};
  // Small graphs grow, large ones shrink.
  constexpr int64_t kFewNodes = 12;
  Graph* graph = AnyGraph();
  const size_t kind = graph->num_nodes() < kFewNodes && Pick(3) == 0 ? Pick(2) : Pick(kKinds);
  if ((this->*kEdits[kind])(*graph)) ++counts_[kind];
}

bool GraphEditor::AddNode(Graph& graph) {
  Node* before = Pick(2) == 0 ? nullptr : AnyNode(graph);
  std::vector<Value*> inputs(Pick(4), nullptr);
  for (Value*& input : inputs) input = Pick(6) == 0 ? nullptr : AnyVisible(graph, before);
  std::vector<Value*> outputs(1 + Pick(2), nullptr);
  for (Value*& output : outputs) output = graph.AddValue(graph.UniqueName("v"));
  if (outputs.size() == 2 && Pick(4) == 0) {
    graph.EraseValue(outputs[1]);
    outputs[1] = nullptr;
  }
  graph.AddNode("", "Op", inputs, outputs, before);
  return true;
}

bool GraphEditor::AddSubgraph(Graph& graph) {
  int depth = 0;
  for (const Graph* outer = graph.parent(); outer != nullptr; outer = outer->parent()) ++depth;
  if (depth >= 2) return false;
  Node* before = AnyNode(graph);
  Node* node = graph.AddNode("", "If", {AnyVisible(graph, before)},
                             {graph.AddValue(graph.UniqueName("v"))}, before);
  Attribute::Graphs bodies;
  for (size_t i = 0; i <= Pick(2); ++i) {
    bodies.push_back(std::make_shared<Graph>(&graph));
    bodies.back()->name = "body";
  }
  const Attribute::Graphs copies = bodies;
  node->SetAttribute("bodies", Attribute{.value = std::move(bodies)});
  for (const auto& body : copies) {
    AddConstant(*body);
    AddNode(*body);
    body->AddOutput(body->nodes().back()->output(0));
  }
  return true;
}

bool GraphEditor::EraseDead(Graph& graph) {
  Node* node = AnyNode(graph);
  return node != nullptr && graph.EraseIfDead(node) > 0;
}

bool GraphEditor::EraseOne(Graph& graph) {
  for (Node* node : NodesOf(graph)) {
    const bool read = std::any_of(node->outputs().begin(), node->outputs().end(), [](Value* value) {
      return value != nullptr && (!value->uses().empty() || value->is_output());
    });
    if (read || Pick(3) == 0) continue;
    graph.EraseNode(node);
    return true;
  }
  return false;
}

// Replaces by something that every reader can see: what the producer of `from` could have read.
bool GraphEditor::ReplaceUses(Graph& graph) {
  const std::vector<Value*> values = graph.values();
  if (values.empty()) return false;
  Value* from = values[Pick(values.size())];
  if (from->producer() == nullptr) return false;
  Value* to = AnyVisible(graph, from->producer());
  if (to == from) return false;
  graph.ReplaceAllUses(from, to);
  return true;
}

bool GraphEditor::SetInput(Graph& graph) {
  Node* node = AnyNode(graph);
  if (node == nullptr) return false;
  const int index = static_cast<int>(Pick(4));
  node->SetInput(index, Pick(5) == 0 ? nullptr : AnyVisible(graph, node));
  return true;
}

bool GraphEditor::Move(Graph& graph) {
  std::vector<Node*> nodes = NodesOf(graph);
  if (nodes.size() < 2) return false;
  const size_t from = Pick(nodes.size()), to = Pick(nodes.size());
  // Between the last producer of what it reads and the first reader of what it computes.
  const auto depends = [](const Node* reader, const Node* producer) {
    return std::any_of(producer->outputs().begin(), producer->outputs().end(),
                       [&](const Value* value) { return value && Reads(*reader, value); });
  };
  for (size_t i = std::min(from, to); i <= std::max(from, to); ++i) {
    if (i == from) continue;
    if (from < to ? depends(nodes[i], nodes[from]) : depends(nodes[from], nodes[i])) return false;
  }
  const bool last = to + 1 == nodes.size();
  graph.MoveBefore(nodes[from], from < to ? (last ? nullptr : nodes[to + 1]) : nodes[to]);
  return true;
}

bool GraphEditor::AddConstant(Graph& graph) {
  graph.AddInitializer(graph.UniqueName("c"), Tensor::Scalar<float>(1));
  return true;
}

bool GraphEditor::ToggleOutput(Graph& graph) {
  const std::vector<Value*> values = graph.values();
  Value* value = values.empty() ? nullptr : values[Pick(values.size())];
  if (value == nullptr || (value->producer() == nullptr && !value->is_input())) return false;
  if (!value->is_output()) {
    graph.AddOutput(value);
    return true;
  }
  if (graph.outputs().size() == 1) return false;
  const auto at = std::find(graph.outputs().begin(), graph.outputs().end(), value);
  graph.RemoveOutput(static_cast<int>(at - graph.outputs().begin()));
  return true;
}

bool GraphEditor::RenameValue(Graph& graph) {
  const std::vector<Value*> values = graph.values();
  if (values.empty()) return false;
  graph.Rename(values[Pick(values.size())], graph.UniqueName(Pick(2) == 0 ? "v" : "renamed"));
  return true;
}

bool GraphEditor::DropSubgraph(Graph& graph) {
  for (Node* node : NodesOf(graph)) {
    if (node->Subgraphs().empty() || Pick(3) == 0) continue;
    node->RemoveAttribute("bodies");
    return true;
  }
  return false;
}

// The clone of the top graph goes on in place of the original.
bool GraphEditor::ReplaceByClone(Graph&) {
  if (Pick(20) != 0) return false;
  graph_ = graph_->Clone();
  return true;
}

}  // namespace pagefuse
