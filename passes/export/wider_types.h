// Types that an op has by its definition and no kernel for in ONNX Runtime's CPU provider.
#pragma once

#include "pagefuse/ir/graph.h"

namespace pagefuse {

// Computes such nodes in the next wider type that has a kernel, which holds every number exactly:
// BitShift of 16 bits in 32, Where and Pad of 16-bit floats in float. Values must be typed.
void WidenTypes(Graph& graph);

}  // namespace pagefuse
