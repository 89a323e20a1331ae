// SPDX-License-Identifier: Apache-2.0
// The attributes `activation` and `limit` of gated products.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

#include "pagefuse/ir/graph/graph.h"
#include "pagefuse/ops/kernels/linalg/activation.h"

namespace pagefuse::pagefuse_ops {

// InvalidArgument if the attribute names no activation. A limit that is not above 0 is none.
absl::StatusOr<Gate> GateOf(const Node& node);

// The lines of standard ops that compute `activated` from `gate`.
std::string GateText(Activation activation, std::string_view gate, std::string_view activated);

}  // namespace pagefuse::pagefuse_ops
