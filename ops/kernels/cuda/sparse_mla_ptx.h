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

// blockIdx.x, read again wherever it is needed: it takes no register in between.
__device__ inline unsigned BlockIndex() {
  unsigned index;
  asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(index));
  return index;
}

// --- clusters (cluster.h): what another block has where this one has `shared`. It must not have ended ---

__device__ inline float4 FourOfBlock(const float* shared, int block) {
#if __CUDA_ARCH__ >= 900
  float4 v;
  asm volatile(
      "{\n.reg .b32 a;\nmapa.shared::cluster.u32 a, %4, %5;\n"
      "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [a];\n}"
      : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
      : "r"(SharedAddress(shared)), "r"(block)
      : "memory");
  return v;
#else
  return block == 0 ? *reinterpret_cast<const float4*>(shared) : float4{};
#endif
}
__device__ inline float2 PairOfBlock(const float2* shared, int block) {
#if __CUDA_ARCH__ >= 900
  float2 v;
  asm volatile(
      "{\n.reg .b32 a;\nmapa.shared::cluster.u32 a, %2, %3;\n"
      "ld.shared::cluster.v2.f32 {%0, %1}, [a];\n}"
      : "=f"(v.x), "=f"(v.y)
      : "r"(SharedAddress(shared)), "r"(block)
      : "memory");
  return v;
#else
  return block == 0 ? *shared : float2{};
#endif
}

// WaitForCluster in two steps: a warp that needs nothing more of other blocks comes, and goes when all have come.
__device__ inline void ArriveAtClusterEnd() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}
__device__ inline void AwaitClusterEnd() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

}  // namespace pagefuse::cuda::ptx
