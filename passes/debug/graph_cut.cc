// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/debug/graph_cut.h"

#include <algorithm>
#include <memory>

namespace pagefuse {
namespace {

using Nodes = absl::flat_hash_set<const Node*>;

// A reader inside: a node of `keep`, or one in a graph that such a node has.
bool IsReadInside(const Use& use, const Graph& graph, const Nodes& keep) {
  if (use.node->graph() == &graph) return keep.contains(use.node);
  return true;
}

bool IsReadOutside(const Value& value, const Graph& graph, const Nodes& keep) {
  return value.is_output() || std::ranges::any_of(value.uses(), [&](const Use& use) {
           return !IsReadInside(use, graph, keep);
         });
}

class Cutter {
 public:
  Cutter(const Model& from, const Nodes& keep) : from_(from), keep_(keep) {
    out_.ir_version = from.ir_version;
    out_.opset_imports = from.opset_imports;
    out_.functions = from.functions;
    out_.metadata = from.metadata;
    out_.graph = std::make_shared<Graph>();
    out_.graph->name = from.graph->name;
  }

  Model Run() {
    AddInputs();
    for (const auto& node : from_.graph->nodes()) {
      if (keep_.contains(node.get())) Copy(*node);
    }
    AddOutputs();
    return std::move(out_);
  }

 private:
  void AddInputs() {
    absl::flat_hash_set<const Value*> read;
    std::vector<const Value*> order;
    for (const auto& node : from_.graph->nodes()) {
      if (!keep_.contains(node.get())) continue;
      for (const Value* value : ValuesRead(*node)) {
        if (read.insert(value).second) order.push_back(value);
      }
    }
    for (const Value* input : from_.graph->inputs()) {
      if (read.contains(input)) Add(*input);
    }
    for (const Value* value : order) {
      const bool inside = value->producer() != nullptr && keep_.contains(value->producer());
      if (!inside && !map_.contains(value)) Add(*value);
    }
  }

  void Add(const Value& value) {
    if (value.IsConstant()) {
      map_[&value] = out_.graph->AddInitializer(value.name(), *value.initializer());
    } else {
      map_[&value] = out_.graph->AddInput(value.name(), value.dtype(), value.shape());
      if (value.initializer() != nullptr) {
        out_.graph->SetInitializer(map_[&value], *value.initializer());
      }
    }
  }

  void Copy(const Node& node) {
    std::vector<Value*> inputs, outputs;
    for (const Value* input : node.inputs()) inputs.push_back(input ? map_.at(input) : nullptr);
    for (const Value* output : node.outputs()) {
      outputs.push_back(output == nullptr ? nullptr
                                          : out_.graph->AddValue(output->name(), output->dtype(),
                                                                 output->shape()));
      if (output != nullptr) map_[output] = outputs.back();
    }
    Node* copy = out_.graph->AddNode(node.domain(), node.op_type(), inputs, outputs);
    copy->overload = node.overload;
    copy->name = node.name;
    for (const auto& [name, attribute] : node.attributes()) {
      copy->SetAttribute(name, Graph::CloneAttribute(attribute, out_.graph.get(), map_));
    }
  }

  void AddOutputs() {
    std::vector<const Value*> unread;
    for (const auto& node : from_.graph->nodes()) {
      if (!keep_.contains(node.get())) continue;
      for (const Value* output : node->outputs()) {
        if (output == nullptr) continue;
        if (IsReadOutside(*output, *from_.graph, keep_)) out_.graph->AddOutput(map_[output]);
        if (output->uses().empty()) unread.push_back(output);
      }
    }
    if (!out_.graph->outputs().empty()) return;
    for (const Value* output : unread) out_.graph->AddOutput(map_[output]);
  }

  const Model& from_;
  const Nodes& keep_;
  Model out_;
  Graph::ValueMap map_;
};

}  // namespace

Model CutModel(const Model& model, const Nodes& keep) { return Cutter(model, keep).Run(); }

}  // namespace pagefuse
