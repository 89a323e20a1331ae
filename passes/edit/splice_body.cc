// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/edit/splice_body.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/edit/graph_edit.h"

namespace pagefuse {
namespace {

// An output that is an input of the function which the call leaves out: so do its readers.
absl::Status Omit(Node& call, int output) {
  Value* value = call.output(output);
  if (value->is_output()) {
    return absl::InvalidArgumentError(
        StrCat(call.Description(), ": output ", output, " \"", value->name(),
               "\": expected a value, got an input that is left out"));
  }
  const std::vector<Use> uses = value->uses();
  for (const Use& use : uses) use.node->SetInput(use.index, nullptr);
  return absl::OkStatus();
}

// Inner values must not have the name of a value around them that is read among them.
void RenameHiding(const Graph& graph) {
  for (const auto& node : graph.nodes()) {
    for (const Value* input : node->inputs()) {
      while (input != nullptr) {
        Value* seen = graph.FindValueInScope(input->name());
        if (seen == input || seen == nullptr) break;
        seen->graph()->Rename(seen, seen->graph()->UniqueName(seen->name()));
      }
    }
    for (const Graph* subgraph : node->Subgraphs()) RenameHiding(*subgraph);
  }
}

}  // namespace

absl::Status SpliceBody(Graph& body, Node& call, const BodyPorts& ports,
                        SymbolicContents& contents) {
  Graph& graph = *call.graph();
  Graph::ValueMap values;
  // The branch of an If reads what is around it, too, and may give it.
  const auto here = [&](Value* inner) {
    const auto found = values.find(inner);
    return found == values.end() ? inner : found->second;
  };
  for (size_t i = 0; i < body.inputs().size(); ++i) {
    values[body.inputs()[i]] = call.input(ports.inputs[i]);
  }
  for (const Value* value : body.initializers()) {
    if (value->is_input()) continue;
    values[value] = AddConstant(graph, value->name(), *value->initializer(), contents);
  }
  const std::string prefix = NodeLabel(call);
  for (const auto& node : body.nodes()) {
    std::vector<Value*> inputs, outputs;
    for (Value* input : node->inputs()) {
      inputs.push_back(input == nullptr ? nullptr : here(input));
    }
    for (const Value* output : node->outputs()) {
      outputs.push_back(nullptr);
      if (output == nullptr) continue;
      outputs.back() = graph.AddValue(graph.UniqueName(StrCat(prefix, "/", output->name())),
                                      output->dtype(), output->shape());
      contents.erase(outputs.back());
      values[output] = outputs.back();
    }
    Node* copy = graph.AddNode(node->domain(), node->op_type(), std::move(inputs),
                               std::move(outputs), &call);
    copy->name = StrCat(prefix, "/", NodeLabel(*node));
    copy->overload = node->overload;
    copy->doc_string = node->doc_string;
    copy->metadata = node->metadata;
    for (const auto& [key, value] : call.metadata) {
      if (!FindMetadata(copy->metadata, key).has_value()) SetMetadata(copy->metadata, key, value);
    }
    for (const auto& [name, attribute] : node->attributes()) {
      copy->SetAttribute(name, Graph::CloneAttribute(attribute, &graph, values));
    }
    for (const Graph* subgraph : copy->Subgraphs()) RenameHiding(*subgraph);
  }
  for (size_t place = 0; place < ports.outputs.size(); ++place) {
    const int i = ports.outputs[place];
    if (i >= call.num_outputs() || call.output(i) == nullptr) continue;
    Value* result = here(body.outputs()[place]);
    if (result == nullptr) {
      PF_RETURN_IF_ERROR(Omit(call, i));
      continue;
    }
    if (!result->shape().has_value()) result->set_shape(call.output(i)->shape());
    graph.ReplaceAllUses(call.output(i), result);
  }
  return absl::OkStatus();
}

BodyPorts PortsInOrder(const Graph& body) {
  BodyPorts ports;
  for (size_t i = 0; i < body.inputs().size(); ++i) ports.inputs.push_back(static_cast<int>(i));
  for (size_t i = 0; i < body.outputs().size(); ++i) ports.outputs.push_back(static_cast<int>(i));
  return ports;
}

}  // namespace pagefuse
