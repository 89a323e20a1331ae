// SPDX-License-Identifier: Apache-2.0
// Computes the sizes in bytes of what nodes output.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/ir/graph/graph.h"

namespace pagefuse {

// ByteSize of output `output`; its InvalidArgument names the node.
absl::StatusOr<int64_t> OutputBytes(const Node& node, int output, DataType dtype,
                                    const std::vector<int64_t>& dims);

// Unimplemented naming the node if nothing tells the type of output `output`.
absl::Status CheckTypeIsKnown(const Node& node, int output, DataType dtype);

// That a tensor that stands for output `output` is of the type and the dims that were inferred.
// Internal naming the node otherwise: its definition contradicts its inference.
absl::Status CheckResult(const Node& node, int output, DataType dtype,
                         const std::vector<int64_t>& dims, const Tensor& result);

}  // namespace pagefuse
