// SPDX-License-Identifier: Apache-2.0
// GELU by tanh as exporters write it out, times a second operand: a chain of elementwise ops.
#pragma once

namespace pagefuse {

// Nodes in text form, from x, up and the numbers three, a, b, one and half to y.
inline constexpr const char* kWrittenOutGelu = R"(
    cube = Pow (x, three)
    scaled = Mul (cube, a)
    sum = Add (x, scaled)
    inner = Mul (sum, b)
    t = Tanh (inner)
    shifted = Add (t, one)
    gate = Mul (shifted, half)
    gelu = Mul (x, gate)
    y = Mul (gelu, up)
)";

}  // namespace pagefuse
