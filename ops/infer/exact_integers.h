// SPDX-License-Identifier: Apache-2.0
// Which integers come out exact: what a type holds, against what an expression of sizes may come to.
// Whoever reads integers off a graph asks here, so that nothing that wraps around or is rounded
// passes for the number that it is computed from.
#pragma once

#include <optional>

#include "pagefuse/base/data_type.h"
#include "pagefuse/ir/tensor/shape.h"

namespace pagefuse {

// Ends included.
struct IntegerRange {
  double least = 0, most = 0;
};

// The integers all of which are numbers of the type, up to the first that is none: 0 and 1 of bool,
// -2048 to 2048 of float16. Nullopt for types that hold no numbers.
std::optional<IntegerRange> ExactIntegers(DataType type);

// What lies between two dims, where sizes that are added up are parts of one sequence, which has at
// most 2^23 tokens, and no axis is longer than 2^30. Nullopt if one of them is unknown.
std::optional<IntegerRange> RangeBetween(const Dim& least, const Dim& most);

// True if the type holds all integers from `least` to `most`; false also if these are unknown.
bool HoldsExactly(DataType type, const Dim& least, const Dim& most);

// True if the type holds the integers of another one that may count tokens.
bool HoldsNumbersOf(DataType type, DataType of);

}  // namespace pagefuse
