// SPDX-License-Identifier: Apache-2.0
#include "mutation_parts.h"

#include <algorithm>

#include "pagefuse/ops/kernels/numeric/convert.h"
#include "pagefuse/passes/edit/constants.h"
#include "pagefuse/passes/edit/graph_edit.h"

namespace pagefuse::testing {

bool IsOneOf(const Node& node, std::initializer_list<std::string_view> ops) {
  return std::any_of(ops.begin(), ops.end(), [&](std::string_view op) { return node.Is(op); });
}

bool IsFloat(const Value* value) {
  return value && (value->dtype() == DataType::kFloat || value->dtype() == DataType::kDouble ||
                   value->dtype() == DataType::kFloat16 || value->dtype() == DataType::kBfloat16);
}

bool IsSignedInteger(const Value* value) {
  return value && (value->dtype() == DataType::kInt64 || value->dtype() == DataType::kInt32);
}

int RankOf(const Value* value) { return value && value->shape() ? value->shape()->rank() : -1; }

std::optional<Tensor> ConstantTensor(const Value* value) {
  if (!value) return std::nullopt;
  if (value->IsConstant()) return *value->initializer();
  const Node* node = value->producer();
  if (!node || !node->Is("Constant") || node->attributes().size() != 1) return std::nullopt;
  const auto& [name, attribute] = node->attributes().front();
  return ConstantNodeValue(attribute, name);
}

std::optional<std::vector<int64_t>> ConstantInts(const Value* value) {
  const std::optional<Tensor> tensor = ConstantTensor(value);
  if (!tensor) return std::nullopt;
  const auto integers = IntegerValues(*tensor);
  return integers.ok() ? std::optional(*integers) : std::nullopt;
}

std::optional<double> ConstantNumber(const Value* value) {
  const std::optional<Tensor> tensor = ConstantTensor(value);
  return tensor ? ScalarNumber(*tensor) : std::nullopt;
}

Tensor FilledLike(const Tensor& like, double number) {
  auto tensor = Tensor::Allocate(like.dtype(), like.dims());
  if (!tensor.ok()) return {};
  if (like.dtype() == DataType::kInt64) {
    std::ranges::fill(tensor->mutable_values<int64_t>(), static_cast<int64_t>(number));
    return *tensor;
  }
  if (like.dtype() == DataType::kInt32) {
    std::ranges::fill(tensor->mutable_values<int32_t>(), static_cast<int32_t>(number));
    return *tensor;
  }
  const std::vector<float> numbers(like.size(), static_cast<float>(number));
  const absl::Status encoded =
      EncodeFromFloat(like.dtype(), numbers.data(), like.size(), tensor->mutable_data());
  return encoded.ok() ? *tensor : Tensor();
}

std::optional<std::vector<int64_t>> ReshapeTarget(const Value* value) {
  if (RankOf(value) < 0) return std::nullopt;
  std::vector<int64_t> dims;
  for (const Dim& dim : value->shape()->dims()) dims.push_back(dim.constant().value_or(-1));
  const bool unclear =
      std::count(dims.begin(), dims.end(), -1) > 1 || std::count(dims.begin(), dims.end(), 0) > 0;
  return unclear ? std::nullopt : std::optional(dims);
}

std::optional<int64_t> DimAt(const Value* value, int64_t axis) {
  if (axis < 0 || axis >= RankOf(value)) return std::nullopt;
  return (*value->shape())[static_cast<int>(axis)].constant();
}

Value* Rewriter::Add(std::string_view op, std::vector<Value*> inputs) {
  Value* output = graph_.AddValue(graph_.UniqueName("mutated"));
  graph_.AddNode("", op, std::move(inputs), {output}, &node_);
  return output;
}

Value* Rewriter::AddInt(std::string_view op, std::vector<Value*> inputs, std::string_view attribute,
                        int64_t value) {
  Value* output = Add(op, std::move(inputs));
  output->producer()->SetAttribute(attribute, MakeAttribute(value));
  return output;
}

Value* Rewriter::AddInts(std::string_view op, std::vector<Value*> inputs,
                         std::string_view attribute, std::vector<int64_t> values) {
  Value* output = Add(op, std::move(inputs));
  output->producer()->SetAttribute(attribute, MakeAttribute(std::move(values)));
  return output;
}

Value* Rewriter::Cast(Value* value, DataType type) {
  return AddInt("Cast", {value}, "to", static_cast<int64_t>(type));
}

std::vector<Value*> Rewriter::Split(Value* value, int64_t axis, Value* sizes, int parts) {
  std::vector<Value*> outputs;
  for (int i = 0; i < parts; ++i) outputs.push_back(graph_.AddValue(graph_.UniqueName("part")));
  Node* node = graph_.AddNode("", "Split", {value, sizes}, outputs, &node_);
  node->SetAttribute("axis", MakeAttribute(axis));
  return outputs;
}

Value* Rewriter::TopOne(Value* value, int64_t axis) {
  Value* largest = graph_.AddValue(graph_.UniqueName("largest"));
  Value* places = graph_.AddValue(graph_.UniqueName("places"));
  Node* node = graph_.AddNode("", "TopK", {value, Ints({1})}, {largest, places}, &node_);
  node->SetAttribute("axis", MakeAttribute(axis));
  return largest;
}

Value* Rewriter::Constant(Tensor tensor) {
  return graph_.AddInitializer(graph_.UniqueName("constant"), std::move(tensor));
}

Value* Rewriter::Ints(std::vector<int64_t> values) {
  const auto size = static_cast<int64_t>(values.size());
  return Constant(Tensor::Of<int64_t>({size}, values));
}

void Rewriter::Replace(int output, Value* value) {
  Value* old = node_.output(output);
  value->set_dtype(old->dtype());
  if (!value->shape()) value->set_shape(old->shape());
  graph_.ReplaceAllUses(old, value);
}

bool Rewriter::Done() {
  graph_.EraseNode(&node_);
  return true;
}

bool Rewriter::ReplaceWith(Value* value) {
  Replace(0, value);
  return Done();
}

bool Rename(Node& node, std::string_view op) {
  Rewriter rewriter(node);
  Value* renamed = rewriter.Add(op, node.inputs());
  for (const auto& [name, attribute] : node.attributes()) {
    renamed->producer()->SetAttribute(name, attribute);
  }
  return rewriter.ReplaceWith(renamed);
}

}  // namespace pagefuse::testing
