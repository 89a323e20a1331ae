#include "pagefuse/passes/graph_builder.h"

#include <utility>

namespace pagefuse {

Node* GraphBuilder::AddNode(std::string_view domain, std::string_view op,
                            std::vector<Value*> inputs, int num_outputs) {
  std::vector<Value*> outputs;
  for (int i = 0; i < num_outputs; ++i) {
    outputs.push_back(graph_.AddValue(graph_.UniqueName(prefix_ + "." + std::string(op))));
  }
  return graph_.AddNode(domain, op, std::move(inputs), std::move(outputs), anchor_);
}

Value* GraphBuilder::Add(std::string_view op, std::vector<Value*> inputs) {
  return AddNode("", op, std::move(inputs), 1)->output(0);
}

Value* GraphBuilder::Add(std::string_view op, std::vector<Value*> inputs,
                         std::string_view attribute, std::vector<int64_t> ints) {
  Node* node = AddNode("", op, std::move(inputs), 1);
  node->SetAttribute(attribute, {.value = std::move(ints), .doc_string = {}, .unknown_fields = {}});
  return node->output(0);
}

Value* GraphBuilder::Add(std::string_view op, std::vector<Value*> inputs,
                         std::string_view attribute, int64_t value) {
  Node* node = AddNode("", op, std::move(inputs), 1);
  node->SetAttribute(attribute, {.value = value, .doc_string = {}, .unknown_fields = {}});
  return node->output(0);
}

Value* GraphBuilder::Size(Value* value, int64_t axis) {
  Value* size = Add("Shape", {value}, "start", axis);
  size->producer()->SetAttribute("end",
                                 {.value = axis + 1, .doc_string = {}, .unknown_fields = {}});
  return size;
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

}  // namespace pagefuse
