// SPDX-License-Identifier: Apache-2.0
// Products of up to 8 rows with weights [K, N], in float. A block makes the columns that 8 lanes' pieces of 16 bytes
// hold; its warps share K, four rows of W a warp at once.
#include "pagefuse/ops/kernels/cuda/launch_kernel.h"
#include "pagefuse/ops/kernels/cuda/product_parts.h"
#include "pagefuse/ops/kernels/cuda/ptx.h"

namespace pagefuse::cuda {
namespace {

constexpr int kMostRows = 8;
constexpr int kManyRows = 4;                        // of a block where there is more than one
constexpr int kWarps = 16, kAcross = 8, kDown = 4;  // lanes beside and below each other

struct ColumnsCall {
  int64_t n = 0, k = 0;
  int m = 0;
  bool constant_weights = false;
  const void* x = nullptr;
  const void* weight = nullptr;
  const void* up = nullptr;
  Epilogue epilogue;
};

template <typename T, bool kGated, int kRows>
__global__ void __launch_bounds__(kWarps * 32)
    ColumnsKernel(const __grid_constant__ ColumnsCall call) {
  constexpr int kMatrices = kGated ? 2 : 1, kCount = 16 / sizeof(T);
  constexpr int kColumns = kAcross * kCount;
  constexpr int kLoads = !kGated ? 6 : kRows > 1 ? 2 : 4;  // pieces that a lane has in registers
  __shared__ float sums[kWarps][kRows][kColumns];
  if (!call.constant_weights) ptx::WaitForKernelBefore();
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t column0 = int64_t{blockIdx.x} * kColumns;
  const int64_t column = column0 + lane % kAcross * kCount;
  const int64_t first = warp * kDown + lane / kAcross;
  constexpr int64_t kStep = kWarps * kDown;
  const auto load = [&](int matrix, int64_t k) {
    const T* w = static_cast<const T*>(matrix == 0 ? call.weight : call.up);
    const bool there = k < call.k && column < call.n;
    return there ? __ldcs(reinterpret_cast<const uint4*>(w + k * call.n + column)) : uint4{};
  };
  uint4 pieces[kLoads][kMatrices];
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
#pragma unroll
    for (int j = 0; j < kMatrices; ++j) pieces[i][j] = load(j, first + i * kStep);
  }
  ptx::LetNextKernelBegin();
  if (call.constant_weights) ptx::WaitForKernelBefore();
  const int row0 = static_cast<int>(blockIdx.y) * kRows;
  const T* x = static_cast<const T*>(call.x) + row0 * call.k;
  const int rows = call.m - row0;
  float own[kMatrices][kRows][kCount] = {};
  for (int64_t round = first; round < call.k; round += kLoads * kStep) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int64_t k = round + i * kStep;
      float values[kRows];
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        values[r] = r < rows && k < call.k ? ToFloat(x[r * call.k + k]) : 0.0f;
      }
#pragma unroll
      for (int j = 0; j < kMatrices; ++j) {
        const auto w = *reinterpret_cast<const Vector<T, kCount>*>(&pieces[i][j]);
#pragma unroll
        for (int c = 0; c < kCount; ++c) {
          const float number = ToFloat(w.at[c]);
#pragma unroll
          for (int r = 0; r < kRows; ++r) own[j][r][c] += values[r] * number;
        }
        pieces[i][j] = load(j, k + kLoads * kStep);
      }
    }
  }
  float totals[kMatrices] = {};
  const int at = static_cast<int>(threadIdx.x);
  const int row = at / kColumns;
#pragma unroll
  for (int j = 0; j < kMatrices; ++j) {
    __syncthreads();
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int c = 0; c < kCount; ++c) {
        float sum = own[j][r][c];
        for (int distance = kAcross; distance < 32; distance *= 2) {
          sum += __shfl_xor_sync(0xFFFFFFFFu, sum, distance);
        }
        if (lane < kAcross) sums[warp][r][lane * kCount + c] = sum;
      }
    }
    __syncthreads();
    if (row < kRows) {
      for (int i = 0; i < kWarps; ++i) totals[j] += sums[i][row][at % kColumns];
    }
  }
  const int64_t to = column0 + at % kColumns;
  if (row >= kRows || row >= rows || to >= call.n) return;
  if constexpr (kGated) {
    call.epilogue.WriteGated<T>(row0 + row, to, totals[0], totals[1]);
  } else {
    call.epilogue.Write<T>(row0 + row, to, totals[0]);
  }
}

template <typename T, bool kGated>
Error LaunchOf(const ProductParams& params, Stream stream) {
  const ColumnsCall call{.n = params.n,
                         .k = params.k,
                         .m = static_cast<int>(params.m),
                         .constant_weights = params.constant_weights,
                         .x = params.x,
                         .weight = params.weight.data,
                         .up = params.up.data,
                         .epilogue = Epilogue::Of(params)};
  constexpr int kColumns = kAcross * 16 / sizeof(T);
  const int rows = params.m == 1 ? 1 : kManyRows;
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(CeilDiv(params.n, kColumns)),
                                       static_cast<unsigned>(CeilDiv(params.m, rows))),
                          .block = kWarps * 32};
  return rows == 1 ? Launch(ColumnsKernel<T, kGated, 1>, shape, stream, call)
                   : Launch(ColumnsKernel<T, kGated, kManyRows>, shape, stream, call);
}

}  // namespace

bool SuitsSmallColumns(const ProductParams& params) {
  const int64_t width = params.type == DataType::kFloat ? 4 : 2;
  const auto suits = [&](const ProductWeight& w) {
    return w.type == params.type && !w.rows && IsAligned(w.data, 16);
  };
  return params.m <= kMostRows && !params.x_turned && params.batch.empty() &&
         params.n * width % 16 == 0 && suits(params.weight) &&
         (!params.gated() || suits(params.up));
}

Error LaunchSmallColumns(const ProductParams& params, Stream stream) {
  return ForFloatType(params.type, [&]<typename T>() -> Error {
    return params.gated() ? LaunchOf<T, true>(params, stream) : LaunchOf<T, false>(params, stream);
  });
}

}  // namespace pagefuse::cuda
