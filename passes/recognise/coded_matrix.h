// SPDX-License-Identifier: Apache-2.0
// Reads constant matrices that products use as codes of a few bits, or as bfloat16.
#pragma once

#include "absl/status/statusor.h"

#include "pagefuse/ir/graph/graph.h"

namespace pagefuse {

// Whether the node is com.microsoft.MatMulNBits or pagefuse.Linear over floats by constants alone,
// without order of columns and bias.
bool IsProductWithCodes(const Node& node);

// The matrix [N, K] of such a product as floats.
absl::StatusOr<Tensor> DecodedMatrix(const Node& product);

// Whether DequantizeLinear gives the value from constants alone.
bool IsDequantisedConstant(const Value& value);

// What it gives.
absl::StatusOr<Tensor> DequantisedConstant(const Value& value);

}  // namespace pagefuse
