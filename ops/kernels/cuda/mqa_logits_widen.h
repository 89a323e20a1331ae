// SPDX-License-Identifier: Apache-2.0
// Codes of e4m3fn as halves, which hold them exactly, from sm_89 on. For .cu files.
#pragma once

#include <algorithm>
#include <cstdint>

#include "pagefuse/ops/kernels/cuda/launch_kernel.h"
#include "pagefuse/ops/kernels/cuda/mqa_logits_ptx.h"
#include "pagefuse/ops/kernels/cuda/mqa_logits_tiles.h"
#include "pagefuse/ops/kernels/cuda/ptx.h"

namespace pagefuse::cuda {

// 16 elements a thread.
static __global__ void WidenKernel(const uint8_t* codes, const float* scales, uint16_t* halves,
                                   int64_t n) {
#if __CUDA_ARCH__ >= 890
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  const int64_t stride = int64_t{gridDim.x} * blockDim.x * 16;
  for (int64_t i = (blockIdx.x * int64_t{blockDim.x} + threadIdx.x) * 16; i < n; i += stride) {
    const uint4 from = *reinterpret_cast<const uint4*>(codes + i);
    const bool negative = scales != nullptr && scales[i / kTileSize] < 0;
    const uint32_t signs = negative ? 0x80808080 : 0;
    uint4 low, high;
    ptx::Widen(from.x ^ signs, low.x, low.y);
    ptx::Widen(from.y ^ signs, low.z, low.w);
    ptx::Widen(from.z ^ signs, high.x, high.y);
    ptx::Widen(from.w ^ signs, high.z, high.w);
    reinterpret_cast<uint4*>(halves + i)[0] = low;
    reinterpret_cast<uint4*>(halves + i)[1] = high;
  }
#endif
}

// n elements in rows of kTileSize. `scales`, one a row, or null: rows of negative scales change their signs, so
// that the scale's magnitude follows the rectifier.
inline Error LaunchWiden(const uint8_t* codes, const float* scales, uint16_t* halves, int64_t n,
                         Stream stream) {
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(CeilDiv(n, 16 * 256), 2048));
  return Launch(WidenKernel, {.grid = blocks, .block = 256}, stream, codes, scales, halves, n);
}

}  // namespace pagefuse::cuda
