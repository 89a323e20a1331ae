// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/edit/graph_builder.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/kernels/numeric/convert.h"

namespace pagefuse {

Node* GraphBuilder::AddNode(std::string_view domain, std::string_view op,
                            std::vector<Value*> inputs, int num_outputs,
                            const Attributes& attributes) {
  std::vector<Value*> outputs;
  for (int i = 0; i < num_outputs; ++i) {
    outputs.push_back(graph_.AddValue(graph_.UniqueName(prefix_ + "." + std::string(op))));
  }
  Node* node = graph_.AddNode(domain, op, std::move(inputs), std::move(outputs), anchor_);
  attributes.SetOn(*node);
  return node;
}

Value* GraphBuilder::Add(std::string_view op, std::vector<Value*> inputs,
                         const Attributes& attributes) {
  return AddNode("", op, std::move(inputs), 1, attributes)->output(0);
}

Value* GraphBuilder::Size(Value* value, int64_t axis) {
  return Add("Shape", {value}, {{"start", axis}, {"end", axis + 1}});
}

Value* GraphBuilder::Ints(std::vector<int64_t> values) {
  const auto size = static_cast<int64_t>(values.size());
  return graph_.AddInitializer(graph_.UniqueName(prefix_ + ".ints"),
                               Tensor::Of<int64_t>({size}, values));
}

Value* GraphBuilder::Int(int64_t value) {
  return graph_.AddInitializer(graph_.UniqueName(prefix_ + ".int"), Tensor::Scalar<int64_t>(value));
}

Value* GraphBuilder::Float(float value) {
  return graph_.AddInitializer(graph_.UniqueName(prefix_ + ".float"), Tensor::Scalar<float>(value));
}

Value* GraphBuilder::Float(float value, DataType type) {
  if (type == DataType::kFloat || type == DataType::kUndefined) return Float(value);
  absl::StatusOr<Tensor> number = Tensor::Allocate(type, {});
  PF_CHECK(number.ok() && EncodeFromFloat(type, &value, 1, number->mutable_data()).ok());
  return graph_.AddInitializer(graph_.UniqueName(prefix_ + ".float"), *std::move(number));
}

}  // namespace pagefuse
