// SPDX-License-Identifier: Apache-2.0
// Instructions of the tiles of SparseMlaAttention. Device code alone.
#pragma once

#include <cstdint>

#include "pagefuse/ops/kernels/cuda/ptx.h"

namespace pagefuse::cuda::ptx {

// As LoadMatrices, of the transposed matrices: register j of lane i has elements i / 4 of rows 2 * (i % 4) and the next of matrix j.
__device__ inline void LoadMatricesTransposed(const void* row, uint32_t (&to)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(SharedAddress(row))
               : "memory");
}

}  // namespace pagefuse::cuda::ptx
