// SPDX-License-Identifier: Apache-2.0
#include "in_doubles.h"

#include "mutation_parts.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/infer/infer.h"
#include "pagefuse/ops/kernels/numeric/convert.h"
#include "pagefuse/passes/edit/graph_edit.h"

namespace pagefuse::testing {
namespace {

absl::StatusOr<Tensor> Widened(const Tensor& tensor) {
  PF_ASSIGN_OR_RETURN(Tensor wide, Tensor::Allocate(DataType::kDouble, tensor.dims()));
  PF_RETURN_IF_ERROR(DecodeToDouble(tensor.dtype(), tensor.data(), tensor.size(),
                                    wide.mutable_values<double>().data()));
  return wide;
}

// Floats that the node reads from outside the graph, as doubles.
absl::Status WidenInputs(Node& node) {
  for (int i = 0; i < node.num_inputs(); ++i) {
    Value* value = node.input(i);
    if (!value || value->dtype() != DataType::kFloat) continue;
    Rewriter rewriter(node);
    if (const std::optional<Tensor> constant = ConstantTensor(value)) {
      PF_ASSIGN_OR_RETURN(Tensor wide, Widened(*constant));
      node.SetInput(i, rewriter.Constant(std::move(wide)));
    } else if (!value->producer()) {
      node.SetInput(i, rewriter.Cast(value, DataType::kDouble));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Model> InDoubles(const Model& model) {
  Model wide = model.Clone();
  PF_RETURN_IF_ERROR(InferShapes(wide));
  const std::vector<Node*> nodes = NodesOf(*wide.graph);
  for (Node* node : nodes) PF_RETURN_IF_ERROR(WidenInputs(*node));
  for (Node* node : nodes) {
    if (node->Is("Constant")) continue;
    if (node->Is("Cast") && node->output(0)->dtype() == DataType::kFloat) {
      node->SetAttribute("to", MakeAttribute(static_cast<int64_t>(DataType::kDouble)));
    }
    for (Value* output : node->outputs()) {
      if (output && output->dtype() == DataType::kFloat) output->set_dtype(DataType::kDouble);
    }
  }
  PF_RETURN_IF_ERROR(InferShapes(wide));
  return wide;
}

}  // namespace pagefuse::testing
