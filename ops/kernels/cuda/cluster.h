// SPDX-License-Identifier: Apache-2.0
// Clusters: blocks that run at the same time and read each other's shared memory. On sm_90 and newer; before, a cluster
// is one block. Device code alone.
#pragma once

#include <cstdint>

#include "pagefuse/ops/kernels/cuda/launch_kernel.h"
#include "pagefuse/ops/kernels/cuda/ptx.h"

namespace pagefuse::cuda {

// That the current device takes whatever the kernel is.
inline int MostClusterBlocks() { return OverlapsLaunches() ? 8 : 1; }

// Launch of launch_kernel.h, with clusters of `blocks` neighbours along x, of which the grid is a multiple.
template <typename... Params, typename... Args>
Error LaunchClusters(void (*kernel)(Params...), const LaunchShape& shape, int blocks, Stream stream,
                     Args&&... args) {
  if (blocks == 1) return Launch(kernel, shape, stream, std::forward<Args>(args)...);
  cudaLaunchConfig_t config = {};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream;
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim.x = static_cast<unsigned>(blocks);
  attributes[1].val.clusterDim.y = attributes[1].val.clusterDim.z = 1;
  config.attrs = attributes;
  config.numAttrs = 2;
  return cudaLaunchKernelEx(&config, kernel, std::forward<Args>(args)...);
}

namespace ptx {

// Until all threads of the cluster have come here; what they wrote into shared memory is seen.
__device__ inline void WaitForCluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
#else
  __syncthreads();
#endif
}

// Numbers that another block of the cluster has where this one has `shared`, aligned to their size. That block must not
// have ended.
template <int kCount>
__device__ void SharedOfBlock(const float* shared, int block, float (&to)[kCount]) {
  static_assert(kCount == 1 || kCount == 4);
#if __CUDA_ARCH__ >= 900
  uint32_t address;
  asm("mapa.shared::cluster.u32 %0, %1, %2;"
      : "=r"(address)
      : "r"(SharedAddress(shared)), "r"(block));
  if constexpr (kCount == 1) {
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(to[0]) : "r"(address) : "memory");
  } else {
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3])
                 : "r"(address)
                 : "memory");
  }
#else
#pragma unroll
  for (int i = 0; i < kCount; ++i) to[i] = block == 0 ? shared[i] : 0.0f;
#endif
}

// What another block of the cluster has where this one has `shared`. That block must not have ended.
__device__ inline float SharedOfBlock(const float* shared, int block) {
#if __CUDA_ARCH__ >= 900
  uint32_t address;
  float value;
  asm("mapa.shared::cluster.u32 %0, %1, %2;"
      : "=r"(address)
      : "r"(SharedAddress(shared)), "r"(block));
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(address) : "memory");
  return value;
#else
  return block == 0 ? *shared : 0.0f;
#endif
}

}  // namespace ptx
}  // namespace pagefuse::cuda
