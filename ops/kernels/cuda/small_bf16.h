// SPDX-License-Identifier: Apache-2.0
// Products of up to 16 rows with bfloat16 weights in rows, bound by the memory's bandwidth. Device code alone.
//
// A block makes 8 columns of y; its warps share K. A lane loads 8 neighbours of a row of W at once: they are the
// right operand of two steps of the tensor cores, whose order along K is free as long as x has the same. All loads of
// W are asked for before the kernel waits for the one in front of it, and before it needs the first of them.
#pragma once

#include "pagefuse/ops/kernels/cuda/launch_kernel.h"
#include "pagefuse/ops/kernels/cuda/product_parts.h"
#include "pagefuse/ops/kernels/cuda/ptx.h"

namespace pagefuse::cuda {

inline constexpr int kSmallColumns = 8;  // of a block
inline constexpr int kChunk = 32;        // elements along K that a warp takes at once
inline constexpr int kOwnElements = 8;   // of them a lane's

struct SmallCall {
  int64_t n = 0, k = 0;
  int m = 0;
  bool constant_weights = false;
  const void* x = nullptr;
  const Bfloat* weight = nullptr;
  const Bfloat* up = nullptr;
  Epilogue epilogue;

  static SmallCall Of(const ProductParams& params) {
    return {.n = params.n,
            .k = params.k,
            .m = static_cast<int>(params.m),
            .constant_weights = params.constant_weights,
            .x = params.x,
            .weight = static_cast<const Bfloat*>(params.weight.data),
            .up = static_cast<const Bfloat*>(params.up.data),
            .epilogue = Epilogue::Of(params)};
  }
};

// 8 elements of a row of x as bfloat16, in pairs; zeros for a row that is not there.
__device__ inline void LoadRounded(const float* x, bool there, uint32_t (&pairs)[4]) {
  float4 low = {}, high = {};
  if (there) {
    low = reinterpret_cast<const float4*>(x)[0];
    high = reinterpret_cast<const float4*>(x)[1];
  }
  const auto pair = [](float a, float b) {
    const __nv_bfloat162 both = __floats2bfloat162_rn(a, b);
    return *reinterpret_cast<const uint32_t*>(&both);
  };
  pairs[0] = pair(low.x, low.y);
  pairs[1] = pair(low.z, low.w);
  pairs[2] = pair(high.x, high.y);
  pairs[3] = pair(high.z, high.w);
}
__device__ inline void LoadRounded(const Bfloat* x, bool there, uint32_t (&pairs)[4]) {
  uint4 words = {};
  if (there) words = *reinterpret_cast<const uint4*>(x);
  pairs[0] = words.x, pairs[1] = words.y, pairs[2] = words.z, pairs[3] = words.w;
}

// X: type of x and y. kTall: more than 8 rows. kLoads: chunks that a warp has in registers.
template <typename X, bool kGated, bool kTall, int kWarps, int kLoads>
__global__ void __launch_bounds__(kWarps * 32)
    SmallBf16Kernel(const __grid_constant__ SmallCall call) {
  constexpr int kMatrices = kGated ? 2 : 1, kRows = kTall ? 16 : 8;
  __shared__ float sums[kWarps][kMatrices][kRows][kSmallColumns];
  if (!call.constant_weights) ptx::WaitForKernelBefore();
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int group = lane / 4, own = lane % 4 * kOwnElements;
  const int64_t column0 = int64_t{blockIdx.x} * kSmallColumns;
  const int64_t w_row = min(column0 + group, call.n - 1) * call.k;
  const auto load = [&](int matrix, int64_t chunk) {
    const int64_t k = chunk * kChunk + own;
    const Bfloat* w = matrix == 0 ? call.weight : call.up;
    return k < call.k ? __ldcs(reinterpret_cast<const uint4*>(w + w_row + k)) : uint4{};
  };
  uint4 words[kLoads][kMatrices];
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
#pragma unroll
    for (int j = 0; j < kMatrices; ++j) words[i][j] = load(j, i * kWarps + warp);
  }
  ptx::LetNextKernelBegin();
  if (call.constant_weights) ptx::WaitForKernelBefore();
  const X* x = static_cast<const X*>(call.x);
  float own_sums[kMatrices][4] = {};
  const int64_t chunks = CeilDiv(call.k, kChunk);
  for (int64_t round = warp; round < chunks; round += kLoads * kWarps) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int64_t chunk = round + i * kWarps;
      const int64_t k = chunk * kChunk + own;
      uint32_t low[4], high[4] = {};
      LoadRounded(x + group * call.k + k, group < call.m && k < call.k, low);
      if constexpr (kTall) {
        LoadRounded(x + (group + 8) * call.k + k, group + 8 < call.m && k < call.k, high);
      }
      const uint32_t first[4] = {low[0], high[0], low[1], high[1]};
      const uint32_t second[4] = {low[2], high[2], low[3], high[3]};
#pragma unroll
      for (int j = 0; j < kMatrices; ++j) {
        const uint4 w = words[i][j];
        ptx::MmaBf16(own_sums[j], first, w.x, w.y);
        ptx::MmaBf16(own_sums[j], second, w.z, w.w);
        if (round + kLoads * kWarps < chunks) words[i][j] = load(j, chunk + kLoads * kWarps);
      }
    }
  }
  const int column = lane % 4 * 2;
#pragma unroll
  for (int j = 0; j < kMatrices; ++j) {
    sums[warp][j][group][column] = own_sums[j][0];
    sums[warp][j][group][column + 1] = own_sums[j][1];
    if constexpr (kTall) {
      sums[warp][j][group + 8][column] = own_sums[j][2];
      sums[warp][j][group + 8][column + 1] = own_sums[j][3];
    }
  }
  __syncthreads();
  const int at = static_cast<int>(threadIdx.x);
  const int row = at / kSmallColumns;
  const int64_t to = column0 + at % kSmallColumns;
  if (row >= call.m || to >= call.n) return;
  float total[kMatrices] = {};
#pragma unroll
  for (int i = 0; i < kWarps; ++i) {
#pragma unroll
    for (int j = 0; j < kMatrices; ++j) total[j] += sums[i][j][row][at % kSmallColumns];
  }
  if constexpr (kGated) {
    call.epilogue.WriteGated<X>(row, to, total[0], total[1]);
  } else {
    call.epilogue.Write<X>(row, to, total[0]);
  }
}

template <typename X, bool kGated, int kWarps, int kLoads>
Error LaunchSmall(const ProductParams& params, Stream stream) {
  const SmallCall call = SmallCall::Of(params);
  const LaunchShape shape{.grid = static_cast<unsigned>(CeilDiv(params.n, kSmallColumns)),
                          .block = kWarps * 32};
  return params.m > 8
             ? Launch(SmallBf16Kernel<X, kGated, true, kWarps, kLoads>, shape, stream, call)
             : Launch(SmallBf16Kernel<X, kGated, false, kWarps, kLoads>, shape, stream, call);
}

}  // namespace pagefuse::cuda
