// Caches of keys and values in one tensor [2, B, H, P, D], as exports of GPT-2 have them: what part
// of which input a past is, and of which output a present.
#pragma once

#include <cstdint>
#include <optional>

#include "pagefuse/ir/graph/graph.h"

namespace pagefuse {

// The input that a value [B, H, P, D] is the past of: itself, or one of rank 5 of which it is an
// element of the first axis (by Gather, or as a part of Split). Null if it is neither.
Value* PastInputOf(Value* value);
// Which element of that input it is: -1 for the input itself, nullopt if that is not known.
std::optional<int64_t> PastPlaceOf(const Value* value);

// The output [2, B, H, T, D] that a reader of a value [B, H, T, D] makes of it and others, along a
// new first axis; null if it does something else.
Value* StackedOutputOf(const Use& use);

// The output that a value [B, H, T, D] is the present of: itself, or a StackedOutputOf. Null if it
// is neither. `all` tells whether nothing else reads the value.
struct PresentOutput {
  Value* output = nullptr;
  int64_t place = -1;  // in what is stacked
  bool all = true;
};
PresentOutput PresentOutputOf(Value* value);

}  // namespace pagefuse
