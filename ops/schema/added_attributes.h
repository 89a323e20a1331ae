// SPDX-License-Identifier: Apache-2.0
// Attributes that ops of ai.onnx came to have in later opsets.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

#include "pagefuse/ir/graph/graph.h"

namespace pagefuse {

// InvalidArgument naming node, attribute and opset if a node of ai.onnx has an attribute that a later
// opset added. For graphs as files hold them: rewrites give nodes what the newest opset has.
absl::Status CheckAddedAttributes(const Node& node, int64_t opset);

}  // namespace pagefuse
