// SPDX-License-Identifier: Apache-2.0
// Rows of indices that threads ask for before they know what becomes of them. Device code alone.
#pragma once

#include <cstdint>

#include "pagefuse/ops/kernels/cuda/element.h"

namespace pagefuse::cuda {

// Vectors of indices that a thread loads at once.
inline constexpr int kAhead = 4;

template <int kAtOnce>
using Indices = Vector<int32_t, kAtOnce>;

// Indices [first, ...) of a row of `count`: this one of `threads` gets every `threads`th vector. What is behind the row stays.
template <int kAtOnce>
__device__ void LoadAhead(const int32_t* row, uint32_t count, uint32_t first, uint32_t threads,
                          Indices<kAtOnce> (&ahead)[kAhead]) {
#pragma unroll
  for (int k = 0; k < kAhead; ++k) {
    const uint32_t i = first + k * threads * kAtOnce;
    if (i < count) ahead[k] = *reinterpret_cast<const Indices<kAtOnce>*>(row + i);
  }
}

}  // namespace pagefuse::cuda
