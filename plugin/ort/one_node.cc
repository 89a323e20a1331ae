// SPDX-License-Identifier: Apache-2.0
#include "plugin/ort/one_node.h"

#include "pagefuse/base/status_macros.h"

namespace pagefuse::ort {

absl::Status OneNode::Build(const OpDef& op, const NodeSpec& spec,
                            const std::vector<std::optional<Shape>>& shapes) {
  std::vector<Value*> inputs, outputs;
  std::vector<ShapeContext::Known> known(spec.inputs.size());
  for (size_t i = 0; i < spec.inputs.size(); ++i) {
    const NodeSpec::Port& port = spec.inputs[i];
    Value*& input = inputs.emplace_back(nullptr);
    if (port.dtype == DataType::kUndefined) continue;
    input = graph_.FindValue(port.name);  // the same value may be read twice
    if (input == nullptr && port.constant.defined()) {
      input = graph_.AddInitializer(port.name, port.constant);
    } else if (input == nullptr) {
      input = graph_.AddValue(port.name, port.dtype, shapes[i]);
    }
    known[i] = {input->dtype(), input->shape(), std::nullopt, input->initializer()};
  }
  for (const NodeSpec::Port& port : spec.outputs) {
    const bool is_given = port.dtype != DataType::kUndefined;
    outputs.push_back(is_given ? graph_.AddValue(graph_.UniqueName(port.name)) : nullptr);
  }
  node_ = graph_.AddNode(op.domain(), op.name(), inputs, outputs);
  node_->name = spec.name;
  for (const auto& [name, attribute] : spec.attributes) node_->SetAttribute(name, attribute);
  ShapeContext context(*node_, op.since(), std::move(known));
  PF_RETURN_IF_ERROR(op.Infer(context));
  for (int i = 0; i < node_->num_outputs(); ++i) {
    if (node_->output(i) == nullptr) continue;
    node_->output(i)->set_dtype(context.outputs()[i].dtype);
    node_->output(i)->set_shape(context.outputs()[i].shape);
  }
  return absl::OkStatus();
}

}  // namespace pagefuse::ort
