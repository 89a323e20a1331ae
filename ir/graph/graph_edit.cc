// SPDX-License-Identifier: Apache-2.0
// The mutations of Graph that passes use, and copies.
#include <algorithm>
#include <functional>
#include <queue>

#include "absl/container/flat_hash_set.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/graph/graph.h"

namespace pagefuse {
namespace {

// True for a value of `home` or of a graph around it.
bool IsVisibleFrom(const Graph* home, const Value* value) {
  for (const Graph* graph = home; graph != nullptr; graph = graph->parent()) {
    if (value->graph() == graph) return true;
  }
  return false;
}

// Adds what the nodes of `graph` and of its subgraphs read from `home` or graphs around it.
void CollectOuterReads(const Graph& graph, const Graph* home, absl::flat_hash_set<Value*>& seen,
                       std::vector<Value*>& reads) {
  for (const auto& node : graph.nodes()) {
    for (Value* value : node->inputs()) {
      const bool outer = value != nullptr && IsVisibleFrom(home, value);
      if (outer && seen.insert(value).second) reads.push_back(value);
    }
    for (const Graph* inner : node->Subgraphs()) CollectOuterReads(*inner, home, seen, reads);
  }
  for (Value* value : graph.outputs()) {
    if (IsVisibleFrom(home, value) && seen.insert(value).second) reads.push_back(value);
  }
}

bool IsRead(const Node& node) {
  return std::any_of(node.outputs().begin(), node.outputs().end(), [](const Value* value) {
    return value != nullptr && (!value->uses().empty() || value->is_output());
  });
}

// What a topological sort needs to know of one node.
struct Pending {
  int order = 0;    // place in the file
  int waiting = 0;  // producers that have not been placed
  std::vector<Node*> readers;
};
using PendingMap = absl::flat_hash_map<const Node*, Pending>;

// The producers in its own graph that `node` depends on.
std::vector<Node*> Producers(const Node& node) {
  std::vector<Node*> producers;
  for (const Value* value : ValuesRead(node)) {
    if (value->graph() == node.graph() && value->producer() != nullptr) {
      producers.push_back(value->producer());
    }
  }
  return producers;
}

// Names a node on a cycle, given one that a sort could not place: every such node has a producer
// that could not be placed.
absl::Status CycleError(const Node* node, const PendingMap& pending) {
  absl::flat_hash_set<const Node*> seen;
  while (seen.insert(node).second) {
    for (const Node* producer : Producers(*node)) {
      if (pending.at(producer).waiting > 0) {
        node = producer;
        break;
      }
    }
  }
  return absl::InvalidArgumentError(
      StrCat(node->Description(), ": is part of a cycle: it needs its own output"));
}

}  // namespace

std::vector<Value*> ValuesRead(const Node& node) {
  std::vector<Value*> reads;
  absl::flat_hash_set<Value*> seen;
  for (Value* value : node.inputs()) {
    if (value != nullptr && seen.insert(value).second) reads.push_back(value);
  }
  for (const Graph* graph : node.Subgraphs()) CollectOuterReads(*graph, node.graph(), seen, reads);
  return reads;
}

void Graph::ReplaceAllUses(Value* from, Value* to) {
  PF_CHECK(from->graph_ == this);
  if (from == to) return;
  const std::vector<Use> uses = from->uses_;
  for (const Use& use : uses) use.node->SetInput(use.index, to);
  if (from->is_output()) ReplaceOutputs(from, to);
}

void Graph::ReplaceOutputs(Value* from, Value* to) {
  std::string name = from->name_;
  Value* output = to;
  // Under the output's name a subgraph with an inner value of that name would not see `to`.
  const bool is_hidden = names_below_.contains(name);
  const bool takes_name = to->graph_ == this && !to->is_input_ && !to->is_output() && !is_hidden;
  Rename(from, UniqueName(StrCat(name, "_replaced")));
  if (takes_name) {
    Rename(to, std::move(name));
  } else {
    output = AddValue(std::move(name), to->dtype_, to->shape_);
    AddNode("", "Identity", {to}, {output});
  }
  if (output->dtype_ == DataType::kUndefined) output->dtype_ = from->dtype_;
  if (!output->shape_) output->shape_ = from->shape_;
  if (output->doc_string.empty()) output->doc_string = from->doc_string;
  if (output->metadata.empty()) output->metadata = from->metadata;
  for (int i = 0; i < static_cast<int>(outputs_.size()); ++i) {
    if (outputs_[i] == from) ReplaceOutput(i, output);
  }
}

void Graph::EraseNode(Node* node) {
  PF_CHECK(node->graph_ == this && !IsRead(*node));
  for (int i = 0; i < node->num_inputs(); ++i) node->SetInput(i, nullptr);
  const std::vector<Value*> outputs = node->outputs_;
  for (Value* value : outputs) {
    if (value != nullptr) value->producer_ = nullptr;
  }
  nodes_.erase(node->position_);
  for (Value* value : outputs) {
    if (value != nullptr) EraseValue(value);
  }
}

void Graph::EraseValue(Value* value) {
  PF_CHECK(value->graph_ == this && value->producer_ == nullptr && value->uses_.empty());
  PF_CHECK(!value->is_input_ && !value->is_output());
  ClearInitializer(value);
  by_name_.erase(value->name_);
  TellParents(value->name_, -1);
  values_.erase(value->position_);
}

int Graph::EraseIfDead(Node* node) {
  PF_CHECK(node->graph_ == this);
  int erased = 0;
  std::vector<Node*> candidates = {node};
  absl::flat_hash_set<Node*> gone;
  while (!candidates.empty()) {
    Node* candidate = candidates.back();
    candidates.pop_back();
    if (gone.contains(candidate) || IsRead(*candidate)) continue;
    const std::vector<Node*> producers = Producers(*candidate);
    candidates.insert(candidates.end(), producers.begin(), producers.end());
    gone.insert(candidate);
    EraseNode(candidate);
    ++erased;
  }
  return erased;
}

void Graph::MoveBefore(Node* node, Node* before) {
  PF_CHECK(node->graph_ == this && (before == nullptr || before->graph_ == this));
  if (node == before) return;
  nodes_.splice(before == nullptr ? nodes_.end() : before->position_, nodes_, node->position_);
}

absl::Status Graph::SortTopologically() {
  PendingMap pending;
  for (const auto& node : nodes_) {
    for (Graph* graph : node->Subgraphs()) PF_RETURN_IF_ERROR(graph->SortTopologically());
    pending[node.get()].order = static_cast<int>(pending.size());
  }
  using Entry = std::pair<int, Node*>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> ready;
  for (const auto& node : nodes_) {
    const std::vector<Node*> producers = Producers(*node);
    for (Node* producer : producers) pending[producer].readers.push_back(node.get());
    Pending& entry = pending[node.get()];
    entry.waiting = static_cast<int>(producers.size());
    if (entry.waiting == 0) ready.emplace(entry.order, node.get());
  }
  std::vector<Node*> sorted;
  while (!ready.empty()) {
    Node* node = ready.top().second;
    ready.pop();
    sorted.push_back(node);
    for (Node* reader : pending[node].readers) {
      Pending& entry = pending[reader];
      if (--entry.waiting == 0) ready.emplace(entry.order, reader);
    }
  }
  for (const auto& node : nodes_) {
    if (pending[node.get()].waiting > 0) return CycleError(node.get(), pending);
  }
  for (Node* node : sorted) nodes_.splice(nodes_.end(), nodes_, node->position_);
  return absl::OkStatus();
}

std::unique_ptr<Graph> Graph::Clone() const {
  ValueMap map;
  return CloneInto(parent_, map);
}

std::unique_ptr<Graph> Graph::CloneInto(Graph* parent, ValueMap& map) const {
  auto copy = std::make_unique<Graph>(parent);
  copy->name = name;
  copy->doc_string = doc_string;
  copy->metadata = metadata;
  copy->unknown_fields = unknown_fields;
  for (const auto& value : values_) {
    Value* twin = copy->AddValue(value->name_, value->dtype_, value->shape_);
    twin->doc_string = value->doc_string;
    twin->metadata = value->metadata;
    twin->type_proto = value->type_proto;
    twin->spelled_type = value->spelled_type;
    twin->listed = value->listed;
    twin->tensor_fields = value->tensor_fields;
    twin->unknown_fields = value->unknown_fields;
    map[value.get()] = twin;
  }
  for (const Value* value : inputs_) copy->MarkInput(map[value]);
  for (const Value* value : initializers_) {
    copy->SetInitializer(map[value], *value->initializer_);
    map[value]->sparse_proto = value->sparse_proto;
  }
  for (const auto& node : nodes_) {
    auto twin_of = [&map](Value* value) {
      const auto found = map.find(value);
      return found == map.end() ? value : found->second;
    };
    std::vector<Value*> inputs = node->inputs_;
    std::vector<Value*> outputs = node->outputs_;
    for (Value*& value : inputs) value = twin_of(value);
    for (Value*& value : outputs) value = twin_of(value);
    Node* twin =
        copy->AddNode(node->domain_, node->op_type_, std::move(inputs), std::move(outputs));
    twin->name = node->name;
    twin->overload = node->overload;
    twin->doc_string = node->doc_string;
    twin->metadata = node->metadata;
    twin->unknown_fields = node->unknown_fields;
    for (const auto& [key, attribute] : node->attributes_) {
      twin->attributes_.emplace_back(key, CloneAttribute(attribute, copy.get(), map));
    }
  }
  for (const Value* value : outputs_) copy->AddOutput(map[value]);
  return copy;
}

Attribute Graph::CloneAttribute(const Attribute& attribute, Graph* parent, ValueMap& map) {
  Attribute copy = attribute;
  if (auto* graph = std::get_if<std::shared_ptr<Graph>>(&copy.value)) {
    *graph = (*graph)->CloneInto(parent, map);
  } else if (auto* graphs = std::get_if<Attribute::Graphs>(&copy.value)) {
    for (std::shared_ptr<Graph>& graph_entry : *graphs) {
      graph_entry = graph_entry->CloneInto(parent, map);
    }
  }
  return copy;
}

}  // namespace pagefuse
