// SPDX-License-Identifier: Apache-2.0
// Finds two values that are the two parts of a tensor [.., .., .., D] cut along its last axis, by
// Split or by Slices.
#pragma once

#include <cstdint>
#include <optional>

#include "pagefuse/ir/graph/graph.h"

namespace pagefuse {

// Two parts of one tensor that are all of it.
struct LastAxisHalves {
  Value* whole = nullptr;
  int64_t first = 0, second = 0;  // elements
};
// Nullopt if the values have another rank than 4, or are no such cuts at known places.
std::optional<LastAxisHalves> FindHalves(const Value* first, const Value* second);

}  // namespace pagefuse
