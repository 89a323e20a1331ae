// SPDX-License-Identifier: Apache-2.0
// Function bodies that ONNX Runtime 1.30 can run on a CPU.
#pragma once

#include "pagefuse/base/data_type.h"
#include "pagefuse/ir/graph/graph.h"

namespace pagefuse {

// ONNX Runtime knows float8 in casts alone: not in BitCast, not where data only moves. Here its
// codes are uint8 throughout; a conversion from or to float8 becomes one from or to uint8. Results
// are other numbers, and the time of ONNX Runtime is a lower bound: it saves the rounding.
DataType RuntimeType(DataType type);

// Puts RuntimeType for the types in the body; and conversions around what ONNX Runtime lacks:
// BitShift of uint16 (as uint32) and Where of bfloat16 (as float16, bit for bit).
void AdaptToRuntime(Graph& body);

}  // namespace pagefuse
