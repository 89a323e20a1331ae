// SPDX-License-Identifier: Apache-2.0
// Rewrites bodies and graphs for runtimes that lack an op, a type or a kernel.
#pragma once

#include "absl/status/status.h"

#include "pagefuse/ir/graph/graph.h"

namespace pagefuse {

// --- bit_arithmetic.cc ---
// For runtimes that have no BitCast and compute nothing in float8: bits of numbers by arithmetic,
// exponents by comparison with powers of two, mantissas by exact products. Exact for every number,
// zeros with a sign and subnormals included; a NaN becomes the quiet one of its type.
//
// Puts nodes of opset 21 in place of those that compute with float8 or are BitCast. Values of
// e4m3fn become uint8 of the same bytes, the graph's inputs and outputs too. Values must be typed.
// Unimplemented naming the node for what reads float8 otherwise, and for other types of 8 bits.
absl::Status LowerBits(Graph& graph);

// --- wider_types.cc ---
// Types that an op has by its definition and no kernel for in ONNX Runtime's CPU provider: computes
// such nodes in the next wider type that has a kernel, which holds every number exactly: BitShift
// of 16 bits in 32, Where and Pad of 16-bit floats in float. Values must be typed.
void WidenTypes(Graph& graph);

// --- scatter_in_place.cc ---
// Caches that a body writes without a copy. Rows put into a cache [blocks, block_size, ...] seen as
// [slots, ...] and shaped back,
//
//     Reshape (ScatterND (Reshape (cache, [-1, ...]), slots [N, 1], rows), Shape (cache))
//
// become rows put at [slot / block_size, slot % block_size] of the cache itself: a runtime that has
// input and output in one memory then writes the rows and nothing else.
void ScatterInPlace(Graph& body);

}  // namespace pagefuse
