// SPDX-License-Identifier: Apache-2.0
// Arithmetic on the symbolic contents of shape tensors, so that `Shape(x)[1] + past` is a dim.
#pragma once

#include <cstdint>
#include <optional>

#include "pagefuse/ops/schema/shape_context.h"

namespace pagefuse {

// If the node is integer arithmetic (Add, Sub, Mul, Div, Mod, Min, Max, Neg, Abs, ReduceProd, ...)
// on operands of rank 0 or 1 whose contents are known, sets the contents of its output, which must
// have its shape already. Elements that are no expression stay unknown.
void PropagateArithmetic(ShapeContext& context);

// True if the expression cannot be negative, whatever its symbols are: sizes are not.
bool IsNonNegative(const Dim& dim);
// The smaller (larger) of two; where sizes decide, a symbol named after the call, `min(12, total)`.
// Unknown if either is, or if neither the order nor the sign can be told.
Dim DimMin(const Dim& a, const Dim& b);
Dim DimMax(const Dim& a, const Dim& b);
// The number n for which `dim` is DimMin(n, other), if it is one of a number and `other`.
std::optional<int64_t> NumberInMin(const Dim& dim, const Dim& other);
// True for 1, and for the length of what is cut to one where there is any, `min(1, total)`.
bool IsOneOrNone(const Dim& dim);

}  // namespace pagefuse
