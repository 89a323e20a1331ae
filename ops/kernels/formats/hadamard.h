// SPDX-License-Identifier: Apache-2.0
// The Hadamard transform as a rotation: lengths and products of rows stay, and no element of a
// rotated row stands far out.
#pragma once

#include <cstdint>

namespace pagefuse {

// Entries of H / sqrt(n), H the Sylvester-Hadamard matrix, are this and its negative.
float HadamardEntry(int64_t n);
// In place y = H x / sqrt(n). n is a power of two.
void HadamardRotate(float* x, int64_t n);

}  // namespace pagefuse
