// SPDX-License-Identifier: Apache-2.0
// Attributes of ai.onnx that became inputs.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "absl/status/status.h"

#include "pagefuse/ops/schema/shape_context.h"

namespace pagefuse {

// An attribute that became an input: integers as a list, a float as a scalar of the data's type.
struct MovedAttribute {
  std::string_view op_type;
  std::string_view attribute;
  int input;
  int64_t since;  // first opset that has the input, and not the attribute
};

std::span<const MovedAttribute> MovedAttributes();

// InvalidArgument naming node, attribute and opset if the node has an attribute that its opset has no
// more: what it says would count for nothing.
absl::Status CheckMovedAttributes(const ShapeContext& c);

}  // namespace pagefuse
