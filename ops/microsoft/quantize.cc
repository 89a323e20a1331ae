// SPDX-License-Identifier: Apache-2.0
// QuantizeLinear and DequantizeLinear of com.microsoft: what ai.onnx later took over.
#include "pagefuse/ops/onnx/quantize.h"

namespace pagefuse::microsoft_ops {

OpDef QuantizeLinearDef() { return onnx_ops::QuantizeLinearOf("com.microsoft", 1); }
OpDef DequantizeLinearDef() { return onnx_ops::DequantizeLinearOf("com.microsoft", 1); }

}  // namespace pagefuse::microsoft_ops
