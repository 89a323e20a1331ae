// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/analysis/functions/scalar_region.h"

#include <algorithm>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/evaluate/evaluate.h"

namespace pagefuse {
namespace {

// No codec is written in more nodes than this.
constexpr size_t kMaxNodes = 96;

bool IsScalarConstant(const Value* value) {
  const Tensor* tensor = ConstantOf(value);
  return tensor && tensor->size() == 1;
}

// A constant table read by code: Gather(table [N], codes).
bool ReadsTable(const Node& node) {
  if (!node.Is("Gather") || IntOr(node, "axis", 0) != 0) return false;
  const Tensor* table = ConstantOf(node.input(0));
  return table && table->rank() == 1;
}

bool IsElementwiseNode(const Node& node, const OpsetImports& opsets) {
  if (node.num_outputs() != 1 || !node.Subgraphs().empty()) return false;
  if (node.Is("Cast") || node.Is("BitCast") || ReadsTable(node)) return true;
  const OpDef* def = FindOpDef(node, opsets);
  return def && def->is_elementwise();
}

// What the node computes its element from, constants aside.
std::vector<Value*> VaryingInputs(const Node& node) {
  std::vector<Value*> varying;
  for (Value* input : node.inputs()) {
    const bool table = ReadsTable(node) && input == node.input(0);
    if (input && !table && !IsScalarConstant(input)) varying.push_back(input);
  }
  return varying;
}

class RegionReader {
 public:
  RegionReader(Value* result, const OpsetImports& opsets) : result_(result), opsets_(opsets) {}

  std::vector<ScalarRegion> Read() {
    Collect(result_);
    std::vector<ScalarRegion> regions;
    absl::flat_hash_set<Value*> frontier = {result_};
    std::vector<const Node*> nodes;
    // Nodes are met in reverse order, so that whatever reads a value goes before what computes it.
    for (const Node* node : order_) {
      Value* output = node->output(0);
      if (!frontier.contains(output)) continue;
      if (!IsElementwiseNode(*node, opsets_) || nodes.size() == kMaxNodes) break;
      frontier.erase(output);
      nodes.push_back(node);
      for (Value* input : VaryingInputs(*node)) frontier.insert(input);
      if (frontier.size() != 1) continue;
      regions.push_back({.source = *frontier.begin(),
                         .result = result_,
                         .nodes = {nodes.rbegin(), nodes.rend()}});
    }
    return regions;
  }

 private:
  // The producers behind `value`, each after all its readers among them.
  void Collect(Value* value) {
    std::vector<std::pair<const Node*, size_t>> path;
    absl::flat_hash_set<const Node*> seen;
    const auto enter = [&](const Value* of) {
      const Node* node = of->producer();
      if (node && node->graph() == result_->graph() && seen.size() <= kMaxNodes &&
          seen.insert(node).second) {
        path.emplace_back(node, 0);
      }
    };
    enter(value);
    while (!path.empty()) {
      auto& [node, next] = path.back();
      const Node* current = node;
      const std::vector<Value*> inputs =
          IsElementwiseNode(*current, opsets_) ? VaryingInputs(*current) : std::vector<Value*>();
      if (next == inputs.size()) {
        order_.push_back(current);
        path.pop_back();
        continue;
      }
      enter(inputs[next++]);
    }
    std::ranges::reverse(order_);
  }

  Value* result_;
  const OpsetImports& opsets_;
  std::vector<const Node*> order_;
};

Tensor AsVector(const Tensor& tensor) { return *tensor.Reshaped({tensor.size()}); }

}  // namespace

std::vector<ScalarRegion> ScalarRegionsOf(Value* result, const OpsetImports& opsets) {
  return RegionReader(result, opsets).Read();
}

absl::flat_hash_set<const Node*> EndsOfRegionsWith(const std::function<bool(const Node&)>& wanted,
                                                   const Graph& graph, const OpsetImports& opsets) {
  absl::flat_hash_set<const Node*> ends;
  for (const auto& node : graph.nodes()) {
    if (!IsElementwiseNode(*node, opsets)) continue;
    const std::vector<Value*> inputs = VaryingInputs(*node);
    const bool follows_one = std::ranges::any_of(
        inputs, [&](const Value* input) { return ends.contains(input->producer()); });
    if (follows_one || wanted(*node)) ends.insert(node.get());
  }
  return ends;
}

absl::StatusOr<Tensor> EvaluateRegion(const ScalarRegion& region, const OpsetImports& opsets,
                                      const Tensor& points) {
  Model model;
  model.opset_imports = opsets;
  model.graph = std::make_shared<Graph>();
  Graph& graph = *model.graph;
  Graph::ValueMap values;
  values[region.source] =
      graph.AddInput("points", region.source->dtype(), Shape::FromInts(points.dims()));
  for (const Node* node : region.nodes) {
    std::vector<Value*> inputs;
    for (Value* input : node->inputs()) {
      if (input && !values.contains(input)) {
        values[input] =
            graph.AddInitializer(graph.UniqueName("constant"), AsVector(*ConstantOf(input)));
      }
      inputs.push_back(input ? values[input] : nullptr);
    }
    Value* output = graph.AddValue(graph.UniqueName("value"), node->output(0)->dtype());
    Node* copy = graph.AddNode(node->domain(), node->op_type(), std::move(inputs), {output});
    for (const auto& [name, attribute] : node->attributes()) copy->SetAttribute(name, attribute);
    values[node->output(0)] = output;
  }
  graph.AddOutput(values[region.result]);
  PF_ASSIGN_OR_RETURN(std::vector<Tensor> results, EvaluateModel(model, {{"points", points}}));
  return std::move(results[0]);
}

}  // namespace pagefuse
