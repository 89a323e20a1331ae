// Arithmetic on the symbolic contents of shape tensors, so that `Shape(x)[1] + past` is a dim.
#pragma once

#include "pagefuse/ops/shape_context.h"

namespace pagefuse {

// If the node is integer arithmetic (Add, Sub, Mul, Div, Mod, Min, Max, Neg, Abs, ReduceProd, ...)
// on operands of rank 0 or 1 whose contents are known, sets the contents of its output, which must
// have its shape already. Elements that are no expression stay unknown.
void PropagateArithmetic(ShapeContext& context);

}  // namespace pagefuse
