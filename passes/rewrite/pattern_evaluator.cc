// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/rewrite/pattern_evaluator.h"

#include <utility>

#include "pagefuse/ops/evaluate/evaluate.h"
#include "pagefuse/ops/infer/symbolic_arithmetic.h"

namespace pagefuse {
namespace {

// Larger results are not worth computing to compare them.
constexpr int64_t kMaxFolded = 1 << 16;

Tensor TensorOf(const std::vector<int64_t>& values, const ShapeContext::Known& known) {
  const bool scalar = known.shape.has_value() && known.shape->rank() == 0;
  std::vector<int64_t> dims;
  if (!scalar) dims.push_back(static_cast<int64_t>(values.size()));
  if (known.dtype == DataType::kInt32) {
    return Tensor::Of<int32_t>(dims, std::vector<int32_t>(values.begin(), values.end()));
  }
  return Tensor::Of<int64_t>(dims, values);
}

}  // namespace

ShapeContext::Known PatternEvaluator::Operand(int id) {
  const PatternValue& value = pattern_[id];
  switch (value.kind) {
    case PatternKind::kConstant:
      return KnownOf(value.value, *scope_.contents);
    case PatternKind::kAttribute:
      return FromAttribute(value);
    case PatternKind::kInput:
      return KnownOf(state_.bound[id], *scope_.contents);
    case PatternKind::kNode:
      if (state_.bound[id] != nullptr) return KnownOf(state_.bound[id], *scope_.contents);
      break;
    case PatternKind::kDerived:
      break;  // what the pattern says, whatever it is to be compared with
  }
  auto it = computed_.find(id);
  if (it != computed_.end()) return it->second;
  ShapeContext::Known known = Expected(id);
  computed_[id] = known;
  return known;
}

ShapeContext::Known PatternEvaluator::Expected(int id) {
  const Node* node = pattern_[id].value->producer();
  const OpDef* op = node == nullptr ? nullptr : FindOpDef(*node, pattern_.model.opset_imports);
  if (op == nullptr) return {};
  std::vector<ShapeContext::Known> inputs;
  for (const Value* input : node->inputs()) {
    inputs.push_back(input == nullptr ? ShapeContext::Known() : Operand(pattern_.id(input)));
  }
  const int64_t opset = OpsetOf(pattern_.model.opset_imports, node->domain());
  ShapeContext context(*node, opset, inputs);
  if (!op->Infer(context).ok()) return {};
  PropagateArithmetic(context);
  const int output = pattern_[id].value->producer_index();
  ShapeContext::Known result = context.outputs()[output];
  Fold(*node, opset, inputs, output, result);
  return result;
}

ShapeContext::Known PatternEvaluator::FromAttribute(const PatternValue& value) {
  const auto it = state_.attributes.find(value.attribute);
  if (it == state_.attributes.end()) return {};
  const auto& bound = it->second.value;
  Tensor tensor;
  if (const auto* x = std::get_if<Tensor>(&bound)) tensor = *x;
  if (const auto* x = std::get_if<float>(&bound)) tensor = Tensor::Scalar<float>(*x);
  if (const auto* x = std::get_if<int64_t>(&bound)) tensor = Tensor::Scalar<int64_t>(*x);
  if (const auto* x = std::get_if<std::vector<int64_t>>(&bound)) {
    tensor = Tensor::Of<int64_t>({static_cast<int64_t>(x->size())}, *x);
  }
  if (const auto* x = std::get_if<std::vector<float>>(&bound)) {
    tensor = Tensor::Of<float>({static_cast<int64_t>(x->size())}, *x);
  }
  if (!tensor.defined()) return {};
  tensors_.push_back(std::move(tensor));
  ShapeContext::Known known{.dtype = tensors_.back().dtype(),
                            .shape = Shape::FromInts(tensors_.back().dims()),
                            .value = std::nullopt,
                            .tensor = &tensors_.back()};
  const auto ints = IntegerValues(tensors_.back());
  if (ints.ok()) known.value = std::vector<Dim>(ints->begin(), ints->end());
  return known;
}

void PatternEvaluator::Fold(const Node& node, int64_t opset,
                            const std::vector<ShapeContext::Known>& inputs, int output,
                            ShapeContext::Known& result) {
  if (result.tensor != nullptr || !result.shape.has_value()) return;
  const auto dims = result.shape->constant();
  if (!dims.has_value() || ElementCount(*dims).value_or(kMaxFolded + 1) > kMaxFolded) return;
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (node.input(static_cast<int>(i)) == nullptr) {
      tensors.emplace_back();
    } else if (inputs[i].tensor != nullptr) {
      tensors.push_back(*inputs[i].tensor);
    } else if (inputs[i].value.has_value() && Shape(*inputs[i].value).constant().has_value()) {
      tensors.push_back(TensorOf(*Shape(*inputs[i].value).constant(), inputs[i]));
    } else {
      return;
    }
  }
  auto outputs = EvaluateNode(node, opset, tensors);
  if (!outputs.ok() || output >= static_cast<int>(outputs->size())) return;
  tensors_.push_back((*outputs)[output]);
  result.tensor = &tensors_.back();
}

}  // namespace pagefuse
