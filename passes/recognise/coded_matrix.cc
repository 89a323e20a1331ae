// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/recognise/coded_matrix.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/evaluate/evaluate.h"
#include "pagefuse/ops/kernels/linalg/nbits.h"
#include "pagefuse/ops/kernels/numeric/convert.h"
#include "pagefuse/ops/microsoft/matmul_nbits.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/op_types.h"

namespace pagefuse {
namespace {

constexpr int kCodes = 1, kScales = 2, kZeroPoints = 3, kFurther = 4;

TensorArg Argument(const Value* value) {
  const Tensor* tensor = value ? ConstantOf(value) : nullptr;
  if (!tensor) return {};
  // Kernels read through it.
  return {tensor->dtype(), tensor->dims(), const_cast<void*>(tensor->data())};
}

absl::StatusOr<Tensor> WidenedMatrix(const Tensor& rows) {
  PF_ASSIGN_OR_RETURN(Tensor matrix, Tensor::Allocate(DataType::kFloat, rows.dims()));
  PF_RETURN_IF_ERROR(DecodeToFloat(rows.dtype(), rows.data(), rows.size(),
                                   static_cast<float*>(matrix.mutable_data())));
  return matrix;
}

}  // namespace

bool IsProductWithCodes(const Node& node) {
  if (node.Is("Linear", "pagefuse")) {
    const Tensor* rows = ConstantOf(node.input(kCodes));
    return rows != nullptr && rows->rank() == 2 && node.num_inputs() == kCodes + 1;
  }
  if (!node.Is("MatMulNBits", "com.microsoft") || node.input(0)->dtype() != DataType::kFloat) {
    return false;
  }
  for (int i = kFurther; i < node.num_inputs(); ++i) {
    if (node.input(i)) return false;
  }
  const auto is_constant = [&](int i) { return ConstantOf(node.input(i)) != nullptr; };
  const bool has_zero_points = node.num_inputs() > kZeroPoints && node.input(kZeroPoints);
  return is_constant(kCodes) && is_constant(kScales) &&
         (!has_zero_points || is_constant(kZeroPoints));
}

absl::StatusOr<Tensor> DecodedMatrix(const Node& product) {
  if (product.Is("Linear", "pagefuse")) return WidenedMatrix(*ConstantOf(product.input(kCodes)));
  PF_ASSIGN_OR_RETURN(const auto sizes, microsoft_ops::NBitsSizes::Of(product));
  const TensorArg zeros =
      product.num_inputs() > kZeroPoints ? Argument(product.input(kZeroPoints)) : TensorArg{};
  PF_ASSIGN_OR_RETURN(const auto parameters,
                      microsoft_ops::NBitsParameters::Of(Argument(product.input(kScales)), zeros));
  const TensorArg codes = Argument(product.input(kCodes));
  const NBitsWeight weight = sizes.Weight(codes.as<const uint8_t>(), parameters);
  PF_ASSIGN_OR_RETURN(Tensor matrix, Tensor::Allocate(DataType::kFloat, {sizes.n, sizes.k}));
  float* row = matrix.mutable_values<float>().data();
  for (int64_t n = 0; n < sizes.n; ++n) DecodeNBitsRow(weight, n, row + n * sizes.k);
  return matrix;
}

bool IsDequantisedConstant(const Value& value) {
  const Node* node = value.producer();
  if (!node || !node->Is("DequantizeLinear")) return false;
  const auto inputs = node->inputs();
  return std::ranges::all_of(
      inputs, [](const Value* input) { return input == nullptr || ConstantOf(input) != nullptr; });
}

absl::StatusOr<Tensor> DequantisedConstant(const Value& value) {
  const Node& node = *value.producer();
  std::vector<Tensor> inputs;
  for (const Value* input : node.inputs()) inputs.push_back(input ? *ConstantOf(input) : Tensor());
  PF_ASSIGN_OR_RETURN(std::vector<Tensor> outputs, EvaluateNode(node, kCanonicalOpset, inputs));
  return std::move(outputs[0]);
}

}  // namespace pagefuse
