// SPDX-License-Identifier: Apache-2.0
// Ops whose attributes hold graphs: If, Loop, Scan, FlexAttention and Elementwise. The op says
// which graph runs when and on what; the evaluator or the executor runs it.
#pragma once

#include <functional>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/ir/graph/graph.h"
#include "pagefuse/ir/tensor/tensor.h"
#include "pagefuse/ops/schema/shape_context.h"

namespace pagefuse {

// Runs one of the graphs among a node's attributes on its inputs. What the graph reads from around
// it is the runner's matter.
using BodyRunner = std::function<absl::StatusOr<std::vector<Tensor>>(const Graph& body,
                                                                     std::vector<Tensor> inputs)>;

// In place of kernels; an op may have both, and then it runs its graphs where no kernel takes the
// node, and in evaluation, which is the definition. Inference sees the graphs inferred.
struct BodyOp {
  // Computes the node; undefined inputs are omitted ones. Shapes and types of the inputs were
  // checked by OpDef::Infer.
  std::function<absl::StatusOr<std::vector<Tensor>>(
      const Node& node, const std::vector<Tensor>& inputs, const BodyRunner& run)>
      run;
  // Writes to a graph's inputs what the node's inputs tell of their types and shapes.
  std::function<void(const ShapeContext& context, Graph& body)> bind;
};

}  // namespace pagefuse
