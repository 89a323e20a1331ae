// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/edit/graph_edit.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/infer/symbolic_arithmetic.h"
#include "pagefuse/ops/registry/registry.h"
#include "pagefuse/passes/edit/head_order.h"

namespace pagefuse {
namespace {

void AddSubgraphs(Graph& graph, OpsetImports& opsets, std::vector<GraphScope>& scopes) {
  scopes.push_back({&graph, &opsets});
  for (const auto& node : graph.nodes()) {
    for (Graph* subgraph : node->Subgraphs()) AddSubgraphs(*subgraph, opsets, scopes);
  }
}

}  // namespace

std::vector<GraphScope> AllGraphs(Model& model) {
  std::vector<GraphScope> scopes;
  AddSubgraphs(*model.graph, model.opset_imports, scopes);
  for (Function& function : model.functions) {
    if (function.body == nullptr) continue;
    AddSubgraphs(*function.body, function.opset_imports, scopes);
  }
  return scopes;
}

std::vector<Node*> NodesOf(const Graph& graph) {
  return NodesOf(graph, [](const Node&) { return true; });
}

std::vector<Node*> NodesOf(const Graph& graph, absl::FunctionRef<bool(const Node&)> holds) {
  std::vector<Node*> nodes;
  for (const auto& node : graph.nodes()) {
    if (holds(*node)) nodes.push_back(node.get());
  }
  return nodes;
}

std::vector<Node*> NodesOf(const Graph& graph, std::string_view op_type, std::string_view domain) {
  return NodesOf(graph, [&](const Node& node) { return node.Is(op_type, domain); });
}

int64_t OpsetOf(const OpsetImports& opsets, std::string_view domain) {
  if (domain == "ai.onnx") domain = "";
  auto it = opsets.find(std::string(domain));
  if (it == opsets.end() && domain.empty()) it = opsets.find("ai.onnx");
  return it == opsets.end() ? 0 : it->second;
}

const OpDef* FindOpDef(const Node& node, const OpsetImports& opsets) {
  return OpRegistry::Global().Find(node.domain(), node.op_type(),
                                   std::max<int64_t>(1, OpsetOf(opsets, node.domain())));
}

bool IsElementwise(const Node& node) {
  const OpDef* op = OpRegistry::Global().Find("", node.op_type(), INT64_MAX);
  return node.domain().empty() && op != nullptr && op->is_elementwise();
}

const Tensor* ConstantOf(const Value* value) {
  return value != nullptr && value->IsConstant() ? value->initializer() : nullptr;
}

std::optional<std::vector<int64_t>> KnownInts(const Value* value, const SymbolicContents& contents,
                                              int64_t max_size) {
  if (value == nullptr) return std::nullopt;
  if (const Tensor* tensor = ConstantOf(value)) {
    if (tensor->size() > max_size) return std::nullopt;
    auto values = IntegerValues(*tensor);
    if (!values.ok()) return std::nullopt;
    return *std::move(values);
  }
  auto it = contents.find(value);
  if (it == contents.end()) return std::nullopt;
  return Shape(it->second).constant();
}

std::optional<std::vector<Dim>> KnownDims(const Value* value, const SymbolicContents& contents) {
  if (value == nullptr) return std::nullopt;
  if (const Tensor* tensor = ConstantOf(value)) {
    if (tensor->rank() > 1 || tensor->size() > 64) return std::nullopt;
    auto values = IntegerValues(*tensor);
    if (!values.ok()) return std::nullopt;
    return std::vector<Dim>(values->begin(), values->end());
  }
  auto it = contents.find(value);
  if (it == contents.end()) return std::nullopt;
  return it->second;
}

ShapeContext::Known KnownOf(const Value* value, const SymbolicContents& contents) {
  ShapeContext::Known known;
  if (value == nullptr) return known;
  known.dtype = value->dtype();
  known.shape = value->shape();
  known.tensor = ConstantOf(value);
  known.value = KnownDims(value, contents);
  return known;
}

absl::Status InferNode(const Node& node, const OpsetImports& opsets, SymbolicContents& contents) {
  for (const Value* output : node.outputs()) {
    if (output != nullptr) contents.erase(output);
  }
  const OpDef* op = FindOpDef(node, opsets);
  if (op == nullptr || !node.Subgraphs().empty()) return absl::OkStatus();
  std::vector<ShapeContext::Known> inputs;
  for (const Value* input : node.inputs()) inputs.push_back(KnownOf(input, contents));
  ShapeContext context(node, OpsetOf(opsets, node.domain()), std::move(inputs));
  PF_RETURN_IF_ERROR(op->Infer(context));
  PropagateArithmetic(context);
  for (int i = 0; i < node.num_outputs(); ++i) {
    Value* output = node.output(i);
    if (output == nullptr || i >= static_cast<int>(context.outputs().size())) continue;
    const ShapeContext::Known& known = context.outputs()[i];
    if (known.dtype != DataType::kUndefined) output->set_dtype(known.dtype);
    if (known.shape.has_value()) output->set_shape(known.shape);
    if (known.value.has_value()) contents[output] = *known.value;
  }
  return absl::OkStatus();
}

bool CanReplaceWholly(const Value& from, const Value& to) {
  if (!from.is_output()) return true;
  return !to.is_input() && !to.is_output() && to.initializer() == nullptr &&
         to.graph() == from.graph();
}

bool ReplaceValue(Graph& graph, Value* from, Value* to) {
  if (CanReplaceWholly(*from, *to)) {
    if (!from->is_output() && from->uses().empty()) return false;
    graph.ReplaceAllUses(from, to);
    return true;
  }
  const std::vector<Use> uses = from->uses();
  for (const Use& use : uses) use.node->SetInput(use.index, to);
  return !uses.empty();
}

void ReplaceNode(Node* node, Value* to) {
  Graph& graph = *node->graph();
  graph.ReplaceAllUses(node->output(0), to);
  graph.EraseIfDead(node);
}

void TakePlace(Node& made, const Node& old) {
  made.name = old.name;
  made.metadata = old.metadata;
}

Value* AddConstant(Graph& graph, std::string_view base, Tensor tensor, SymbolicContents& contents) {
  Value* value = graph.AddInitializer(graph.UniqueName(base), std::move(tensor));
  contents.erase(value);
  return value;
}

Value* AddInts(Graph& graph, std::string_view base, const std::vector<int64_t>& values,
               SymbolicContents& contents) {
  return AddConstant(graph, base,
                     Tensor::Of<int64_t>({static_cast<int64_t>(values.size())}, values), contents);
}

bool IsDead(const Node& node) {
  return std::ranges::all_of(node.outputs(), [](const Value* output) {
    return output == nullptr || (output->uses().empty() && !output->is_output());
  });
}

std::vector<const Node*> EraseDead(Node* node, SymbolicContents& contents) {
  std::vector<const Node*> erased;
  absl::flat_hash_set<const Node*> gone;
  std::vector<Node*> pending = {node};
  while (!pending.empty()) {
    Node* next = pending.back();
    pending.pop_back();
    if (gone.contains(next)) continue;
    if (!IsDead(*next)) continue;
    for (const Value* input : ValuesRead(*next)) {
      if (input->producer() == nullptr || input->graph() != next->graph()) continue;
      pending.push_back(input->producer());
    }
    for (const Value* output : next->outputs()) contents.erase(output);
    next->graph()->EraseNode(next);
    erased.push_back(next);
    gone.insert(next);
  }
  return erased;
}

bool KeepsMetadata(std::string_view key) {
  return key == "namespace" || key == kKeepsHeads ||
         (key.starts_with("pkg.") && !key.starts_with("pkg.pagefuse."));
}

std::string NodeLabel(const Node& node) {
  if (!node.name.empty()) return node.name;
  for (const Value* output : node.outputs()) {
    if (output != nullptr) return output->name();
  }
  return node.op_type();
}

int64_t IntOr(const Node& node, std::string_view name, int64_t default_value) {
  return node.IntAttribute(name, default_value).value_or(default_value);
}

std::string StringOr(const Node& node, std::string_view name, std::string_view default_value) {
  return node.StringAttribute(name, default_value).value_or(std::string(default_value));
}

std::optional<Tensor> ConstantNodeValue(const Attribute& attribute, std::string_view name) {
  const auto& value = attribute.value;
  if (name == "value") {
    const auto* tensor = std::get_if<Tensor>(&value);
    return tensor == nullptr ? std::nullopt : std::optional<Tensor>(*tensor);
  }
  if (const auto* x = std::get_if<float>(&value)) return Tensor::Scalar<float>(*x);
  if (const auto* x = std::get_if<int64_t>(&value)) return Tensor::Scalar<int64_t>(*x);
  if (const auto* x = std::get_if<std::string>(&value)) return Tensor::Strings({}, {*x});
  if (const auto* x = std::get_if<std::vector<float>>(&value)) {
    return Tensor::Of<float>({static_cast<int64_t>(x->size())}, *x);
  }
  if (const auto* x = std::get_if<std::vector<int64_t>>(&value)) {
    return Tensor::Of<int64_t>({static_cast<int64_t>(x->size())}, *x);
  }
  if (const auto* x = std::get_if<std::vector<std::string>>(&value)) {
    return Tensor::Strings({static_cast<int64_t>(x->size())}, *x);
  }
  return std::nullopt;
}

bool HasAttributeRef(const Node& node) {
  return std::ranges::any_of(node.attributes(), [](const auto& entry) {
    return std::holds_alternative<AttributeRef>(entry.second.value);
  });
}

void MoveCall(Node* call, const std::string& domain) {
  if (call->domain() == domain) return;
  Graph& graph = *call->graph();
  std::vector<Value*> outputs;
  for (const Value* old : call->outputs()) {
    outputs.push_back(
        old == nullptr ? nullptr
                       : graph.AddValue(graph.UniqueName(old->name()), old->dtype(), old->shape()));
  }
  Node* moved = graph.AddNode(domain, call->op_type(), call->inputs(), outputs, call);
  moved->name = call->name;
  moved->doc_string = call->doc_string;
  moved->metadata = call->metadata;
  for (const auto& [name, attribute] : call->attributes()) moved->SetAttribute(name, attribute);
  std::vector<std::string> names;
  for (Value* old : call->outputs()) {
    names.push_back(old == nullptr ? "" : old->name());
    if (old != nullptr)
      graph.ReplaceAllUses(old, moved->output(static_cast<int>(names.size()) - 1));
  }
  graph.EraseNode(call);
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i] != nullptr && outputs[i]->name() != names[i]) graph.Rename(outputs[i], names[i]);
  }
}

}  // namespace pagefuse
