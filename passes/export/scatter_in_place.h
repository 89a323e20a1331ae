// Caches that a body writes without a copy.
#pragma once

#include "pagefuse/ir/graph.h"

namespace pagefuse {

// Rows put into a cache [blocks, block_size, ...] seen as [slots, ...] and shaped back,
//
//     Reshape (ScatterND (Reshape (cache, [-1, ...]), slots [N, 1], rows), Shape (cache))
//
// become rows put at [slot / block_size, slot % block_size] of the cache itself: a runtime that has
// input and output in one memory then writes the rows and nothing else.
void ScatterInPlace(Graph& body);

}  // namespace pagefuse
