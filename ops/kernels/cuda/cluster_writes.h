// SPDX-License-Identifier: Apache-2.0
// Writes into the shared memory of other blocks of a cluster (cluster.h). Before sm_90 a cluster is one block. No block that
// is written to may have ended; WaitForCluster shows it what was written. Device code alone.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "pagefuse/ops/kernels/cuda/ptx.h"

namespace pagefuse::cuda::ptx {

// Writes to where another block of the cluster has what this one has at `shared`.
__device__ inline void StoreInBlock(uint32_t* shared, int block, uint32_t value) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "{\n.reg .b32 a;\nmapa.shared::cluster.u32 a, %0, %1;\n"
      "st.shared::cluster.b32 [a], %2;\n}" ::"r"(SharedAddress(shared)),
      "r"(block), "r"(value)
      : "memory");
#else
  if (block == 0) *shared = value;
#endif
}
__device__ inline void StoreInBlock(uint2* shared, int block, uint2 value) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "{\n.reg .b32 a;\nmapa.shared::cluster.u32 a, %0, %1;\n"
      "st.shared::cluster.v2.b32 [a], {%2, %3};\n}" ::"r"(SharedAddress(shared)),
      "r"(block), "r"(value.x), "r"(value.y)
      : "memory");
#else
  if (block == 0) *shared = value;
#endif
}

// Adds to a number there in one step; returns what it was.
__device__ inline uint32_t AddInBlock(uint32_t* shared, int block, uint32_t value) {
#if __CUDA_ARCH__ >= 900
  uint32_t old;
  asm volatile(
      "{\n.reg .b32 a;\nmapa.shared::cluster.u32 a, %1, %2;\n"
      "atom.relaxed.cluster.shared::cluster.add.u32 %0, [a], %3;\n}"
      : "=r"(old)
      : "r"(SharedAddress(shared)), "r"(block), "r"(value)
      : "memory");
  return old;
#else
  return block == 0 ? atomicAdd(shared, value) : 0;
#endif
}

}  // namespace pagefuse::cuda::ptx
