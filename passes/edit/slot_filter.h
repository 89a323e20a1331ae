// Tokens whose slot is negative are padding: how a graph leaves them out of a write.
#pragma once

#include "pagefuse/ir/graph/graph.h"

namespace pagefuse {

// What a graph without a filter leaves to who feeds it: ONNX counts negative indices from the end, the
// ops skip them.
inline constexpr char kSlotsAreNotNegative[] = "slots are not negative";

// Lets the graph write every token: where it gathers the places of slots that are not negative,
//
//   keep = Squeeze (NonZero (GreaterOrEqual (slots, 0)))   rows = Gather <axis = 0> (x, keep)
//
// rows are x afterwards. False, with nothing changed, if it has no such filter.
bool DropSlotFilter(Graph& graph);

}  // namespace pagefuse
