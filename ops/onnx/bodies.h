// SPDX-License-Identifier: Apache-2.0
// What the ops with graphs among their attributes share: finding a graph, cutting and stacking
// tensors.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/ir/graph/graph.h"
#include "pagefuse/ops/schema/body_op.h"
#include "pagefuse/ops/schema/op_def.h"

namespace pagefuse::onnx_ops {

// The graph that is attribute `name`. InvalidArgument naming the node if it is no graph or does not
// have these numbers of inputs and (at least) outputs.
struct BodyPorts {
  size_t inputs = 0;
  size_t min_outputs = 0;
};
absl::StatusOr<const Graph*> BodyOf(const Node& node, std::string_view name,
                                    const BodyPorts& ports);

// Runs a body; InvalidArgument if it does not give a tensor for each of its outputs.
absl::StatusOr<std::vector<Tensor>> RunBody(const Node& node, const BodyRunner& run,
                                            const Graph& body, std::vector<Tensor> inputs);

// The one element of a bool tensor; InvalidArgument naming the node and `what` otherwise.
absl::StatusOr<bool> OneBool(const Node& node, std::string_view what, const Tensor& tensor);

// Index `index` of axis `axis`, which goes away. Unimplemented for packed types.
absl::StatusOr<Tensor> SliceOf(const Tensor& tensor, int axis, int64_t index);

// Tensors of one type and shape along a new axis, which may be negative: counted from the end of
// the result. `empty` tells type and shape where there are none: a dim that is no number is then 0.
absl::StatusOr<Tensor> Stack(const Node& node, const std::vector<Tensor>& slices, int64_t axis,
                             const Value& empty);

}  // namespace pagefuse::onnx_ops
