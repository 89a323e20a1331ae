// Bits of numbers by arithmetic, for runtimes that have no BitCast and compute nothing in float8:
// exponents by comparison with powers of two, mantissas by exact products. Exact for every number,
// zeros with a sign and subnormals included; a NaN becomes the quiet one of its type.
#pragma once

#include "absl/status/status.h"

#include "pagefuse/ir/graph.h"

namespace pagefuse {

// Puts nodes of opset 21 in place of those that compute with float8 or are BitCast. Values of
// e4m3fn become uint8 of the same bytes, the graph's inputs and outputs too. Values must be typed.
// Unimplemented naming the node for what reads float8 otherwise, and for other types of 8 bits.
absl::Status LowerBits(Graph& graph);

}  // namespace pagefuse
