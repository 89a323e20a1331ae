// SPDX-License-Identifier: Apache-2.0
// The reasons why some ops of the standard are not supported.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"

#include "pagefuse/ir/graph/graph.h"

namespace pagefuse {

class OpRegistry;

// "image geometry", "random numbers", ...: the kind of op that `op` of `domain` is, which pagefuse
// leaves out. Empty for any other op.
std::string_view WhyRefused(std::string_view domain, std::string_view op);

// Unimplemented: the op of a node that the registry has not at that version of its domain; the
// versions that it has are named.
absl::Status UnknownOp(const Node& node, int64_t opset, const OpRegistry& registry);

}  // namespace pagefuse
