// SPDX-License-Identifier: Apache-2.0
// Ops of ai.onnx that came with opset 23 and later, in ops of opset 21: what a file says of them
// that a runtime of that opset reads.
#pragma once

#include "absl/status/statusor.h"

#include "pagefuse/ir/graph/graph.h"
#include "pagefuse/ops/schema/op_def.h"

namespace pagefuse::onnx_ops {

absl::StatusOr<std::string> SwishBody(const Node& node);

// FailedPrecondition if the axes that are normalised depend on a rank that is not known.
absl::StatusOr<std::string> RmsNormBody(const Node& node);

// FailedPrecondition if the rank of X is not known.
absl::StatusOr<std::string> RotaryBody(const Node& node);

}  // namespace pagefuse::onnx_ops
