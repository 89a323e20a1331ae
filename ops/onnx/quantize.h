// SPDX-License-Identifier: Apache-2.0
// QuantizeLinear and DequantizeLinear, which ai.onnx and com.microsoft both have.
#pragma once

#include <string_view>

#include "pagefuse/ops/schema/op_def.h"

namespace pagefuse::onnx_ops {

OpDef QuantizeLinearOf(std::string_view domain, int since);
OpDef DequantizeLinearOf(std::string_view domain, int since);

}  // namespace pagefuse::onnx_ops
