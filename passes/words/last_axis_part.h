// A cut along the last axis of [.., .., .., D], written as Split or as Slice.
#pragma once

#include <cstdint>
#include <optional>

#include "pagefuse/ir/graph.h"

namespace pagefuse {

// Elements [begin, end) of the last axis of `whole`.
struct LastAxisPart {
  Value* whole = nullptr;
  int64_t begin = 0, end = 0;
};

// Nullopt if the value has another rank than 4, or is no such cut at known places.
std::optional<LastAxisPart> FindPart(const Value* part);

// Two parts of one tensor that are all of it.
struct LastAxisHalves {
  Value* whole = nullptr;
  int64_t first = 0, second = 0;  // elements
};
std::optional<LastAxisHalves> FindHalves(const Value* first, const Value* second);

}  // namespace pagefuse
