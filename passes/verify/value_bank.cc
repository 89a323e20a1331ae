// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/verify/value_bank.h"

#include <algorithm>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/evaluate/evaluate.h"
#include "pagefuse/passes/verify/compare_models.h"

namespace pagefuse {
namespace {

int64_t OpsetFor(const Model& model, const std::string& domain) {
  const int64_t version = model.OpsetVersion(domain);
  return version == 0 ? kNewestOpset : version;
}

// A node with what it calls, as a model whose inputs are the values that it reads.
Model ModelOf(const Model& model, const Node& node, const std::vector<Value*>& reads) {
  Model alone;
  alone.ir_version = model.ir_version;
  alone.opset_imports = model.opset_imports;
  alone.functions = model.functions;
  alone.graph = std::make_shared<Graph>();
  Graph::ValueMap map;
  for (const Value* value : reads) {
    map[value] = alone.graph->AddInput(value->name(), value->dtype(), value->shape());
  }
  std::vector<Value*> inputs, outputs;
  for (const Value* input : node.inputs()) inputs.push_back(input ? map.at(input) : nullptr);
  for (const Value* output : node.outputs()) {
    outputs.push_back(output ? alone.graph->AddValue(output->name()) : nullptr);
  }
  Node* copy = alone.graph->AddNode(node.domain(), node.op_type(), inputs, outputs);
  copy->overload = node.overload;
  for (const auto& [name, attribute] : node.attributes()) {
    copy->SetAttribute(name, Graph::CloneAttribute(attribute, alone.graph.get(), map));
  }
  for (Value* output : outputs) {
    if (output != nullptr) alone.graph->AddOutput(output);
  }
  return alone;
}

// The tensors of a node's outputs in their places, undefined where one is omitted.
std::vector<Tensor> InPlaces(const Node& node, std::vector<Tensor> outputs) {
  std::vector<Tensor> places(node.num_outputs());
  size_t next = 0;
  for (int i = 0; i < node.num_outputs(); ++i) {
    if (node.output(i) != nullptr && next < outputs.size()) places[i] = std::move(outputs[next++]);
  }
  return places;
}

bool Calls(const Model& model, const Node& node) {
  return !node.Subgraphs().empty() ||
         model.FindFunction(node.domain(), node.op_type(), node.overload) != nullptr;
}

// A reader that the rewrite left as it was, the caller among them.
bool HasOldReader(const Value& value, const GraphChange& change) {
  return value.is_output() || std::ranges::any_of(value.uses(), [&change](const Use& use) {
           return !change.nodes.contains(use.node);
         });
}

}  // namespace

// What one look finds.
struct ValueBank::Attempt {
  double tolerance = 0;
  absl::flat_hash_map<std::string, Tensor> fresh = {};  // values that were not there
  absl::flat_hash_map<std::string, Tensor> moved = {};  // that have other numbers than before
  BankDifference difference = {};
};

const Tensor* ValueBank::Find(const std::string& name) const {
  const auto it = values_.find(name);
  return it == values_.end() ? nullptr : &it->second;
}

const Tensor* ValueBank::Lookup(const Value& value, const Attempt& attempt) const {
  for (const auto* values : {&attempt.moved, &attempt.fresh, &values_}) {
    const auto it = values->find(value.name());
    if (it != values->end()) return &it->second;
  }
  return value.initializer();
}

absl::StatusOr<std::vector<Tensor>> ValueBank::Evaluate(const Model& model, const Node& node,
                                                        const Attempt& attempt) const {
  const std::vector<Value*> reads = Calls(model, node) ? ValuesRead(node) : node.inputs();
  std::vector<Tensor> inputs(reads.size());
  for (size_t i = 0; i < reads.size(); ++i) {
    if (reads[i] == nullptr) continue;
    const Tensor* tensor = Lookup(*reads[i], attempt);
    if (tensor != nullptr) inputs[i] = *tensor;
  }
  if (!Calls(model, node)) {
    return EvaluateNode(node, OpsetFor(model, node.domain()), inputs);
  }
  std::map<std::string, Tensor> feeds;
  for (size_t i = 0; i < reads.size(); ++i) feeds[reads[i]->name()] = inputs[i];
  PF_ASSIGN_OR_RETURN(std::vector<Tensor> outputs,
                      EvaluateModel(ModelOf(model, node, reads), feeds));
  return InPlaces(node, std::move(outputs));
}

void ValueBank::Note(const Node& node, const std::vector<Tensor>& outputs,
                     const GraphChange& change, Attempt& attempt) const {
  for (int i = 0; i < node.num_outputs(); ++i) {
    const Value* value = node.output(i);
    if (value == nullptr || i >= static_cast<int>(outputs.size()) || !outputs[i].defined()) {
      continue;
    }
    const Tensor* before = Find(value->name());
    if (before == nullptr) {
      attempt.fresh[value->name()] = outputs[i];
      continue;
    }
    const std::string detail = DifferenceText(
        padding_.Blank(*value, *before), padding_.Blank(*value, outputs[i]), attempt.tolerance);
    if (detail.empty()) continue;
    attempt.moved[value->name()] = outputs[i];
    const bool same_kind =
        before->dtype() == outputs[i].dtype() && before->dims() == outputs[i].dims();
    const bool counts = value->is_output() || (same_kind && HasOldReader(*value, change));
    if (counts && attempt.difference.at.empty()) attempt.difference = {value->name(), detail};
  }
}

// The rewrite is rather known by what it replaced than by who reads that.
void ValueBank::Replaced(const GraphChange& change, Attempt& attempt) const {
  for (const auto& [from, to] : change.replaced) {
    const Tensor* before = Find(from);
    const auto after = attempt.fresh.find(to);
    if (before == nullptr || after == attempt.fresh.end()) continue;
    if (before->dims() != after->second.dims()) continue;  // read in another way
    const std::string detail = DifferenceText(*before, after->second, attempt.tolerance);
    if (detail.empty()) continue;
    attempt.difference = {from, detail};
    return;
  }
}

void ValueBank::Sweep(const Model& model) {
  absl::erase_if(values_, [&model](const auto& entry) {
    return model.graph->FindValue(entry.first) == nullptr;
  });
}

absl::StatusOr<BankDifference> ValueBank::Check(const Model& model, const GraphChange& change,
                                                double tolerance) {
  Attempt attempt{.tolerance = tolerance};
  for (const auto& node : model.graph->nodes()) {
    const bool runs = change.nodes.contains(node.get()) ||
                      std::ranges::any_of(node->inputs(), [&attempt](const Value* input) {
                        return input != nullptr && attempt.moved.contains(input->name());
                      });
    if (!runs) continue;
    PF_ASSIGN_OR_RETURN(const std::vector<Tensor> outputs, Evaluate(model, *node, attempt));
    Note(*node, outputs, change, attempt);
  }
  if (!attempt.difference.at.empty()) Replaced(change, attempt);
  for (auto* values : {&attempt.fresh, &attempt.moved}) {
    for (auto& [name, tensor] : *values) values_[name] = std::move(tensor);
  }
  Sweep(model);
  return std::move(attempt.difference);
}

absl::StatusOr<ValueBank> ValueBank::Run(const Model& model,
                                         const std::map<std::string, Tensor>& feeds) {
  ValueBank bank{Padding(feeds)};
  for (const auto& [name, tensor] : feeds) bank.values_[name] = tensor;
  GraphChange all;
  for (const auto& node : model.graph->nodes()) all.nodes.insert(node.get());
  PF_RETURN_IF_ERROR(bank.Check(model, all, 0).status());
  return bank;
}

}  // namespace pagefuse
