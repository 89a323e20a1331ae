// SPDX-License-Identifier: Apache-2.0
// Makes the dims of a case smaller while it is being reduced.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "pagefuse/ir/tensor/shape.h"
#include "pagefuse/passes/debug/reduce.h"

namespace pagefuse {

// A size that dims of inputs and constants have: a symbol, which the feeds give a number, or a
// number, and what the numbers are now.
struct CaseSize {
  Dim dim;
  int64_t size = 0;
};

// All that are above 1, the largest first. Symbols have none where nothing is fed.
std::vector<CaseSize> SizesOf(const ReduceCase& reduced);

// The case with `size` in every dim that is that one: the first elements of feeds and constants. A
// symbol stays one; what is computed is inferred anew. Nothing where a tensor cannot be cut or dims
// do not fit any more.
std::optional<ReduceCase> WithSize(const ReduceCase& reduced, const CaseSize& from, int64_t size);

}  // namespace pagefuse
