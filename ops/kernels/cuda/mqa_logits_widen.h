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

// Rows of kTileSize codes. Those of negative scales, one a row or null, change their signs, so that the
// scale's magnitude follows the rectifier.
struct CodesToWiden {
  const uint8_t* codes = nullptr;
  const float* scales = nullptr;
  uint16_t* halves = nullptr;
  int64_t count = 0;  // of elements
};

// 16 elements a thread and turn: of the first blocks those of one tensor, of the others those of the other.
struct WidenCall {
  CodesToWiden first, second;
  unsigned first_blocks = 0;
};

static __global__ void WidenKernel(const __grid_constant__ WidenCall call) {
#if __CUDA_ARCH__ >= 890
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  const bool is_first = blockIdx.x < call.first_blocks;
  const CodesToWiden& x = is_first ? call.first : call.second;
  const unsigned block = is_first ? blockIdx.x : blockIdx.x - call.first_blocks;
  const unsigned blocks = is_first ? call.first_blocks : gridDim.x - call.first_blocks;
  const int64_t stride = int64_t{blocks} * blockDim.x * 16;
  for (int64_t i = (block * int64_t{blockDim.x} + threadIdx.x) * 16; i < x.count; i += stride) {
    const uint4 from = *reinterpret_cast<const uint4*>(x.codes + i);
    const bool negative = x.scales != nullptr && x.scales[i / kTileSize] < 0;
    const uint32_t signs = negative ? 0x80808080 : 0;
    uint4 low, high;
    ptx::Widen(from.x ^ signs, low.x, low.y);
    ptx::Widen(from.y ^ signs, low.z, low.w);
    ptx::Widen(from.z ^ signs, high.x, high.y);
    ptx::Widen(from.w ^ signs, high.z, high.w);
    reinterpret_cast<uint4*>(x.halves + i)[0] = low;
    reinterpret_cast<uint4*>(x.halves + i)[1] = high;
  }
#endif
}

// Both tensors, none of them empty.
inline Error LaunchWiden(const CodesToWiden& first, const CodesToWiden& second, Stream stream) {
  constexpr int kThreads = 256;
  const auto blocks_of = [](const CodesToWiden& x) {
    return static_cast<unsigned>(std::min<int64_t>(CeilDiv(x.count, 16 * kThreads), 2048));
  };
  const WidenCall call = {first, second, blocks_of(first)};
  return Launch(WidenKernel, {.grid = call.first_blocks + blocks_of(second), .block = kThreads},
                stream, call);
}

}  // namespace pagefuse::cuda
