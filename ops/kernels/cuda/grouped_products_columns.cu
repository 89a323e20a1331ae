// SPDX-License-Identifier: Apache-2.0
// Grouped products of a few rows an expert with matrices [K, N]. A block makes the columns that 8 lanes' pieces of 16 bytes hold; its warps
// share K, four rows of W a warp at once.
#include "pagefuse/ops/kernels/cuda/grouped_products_rows.h"

namespace pagefuse::cuda {
namespace {

constexpr int kWarps = 16, kAcross = 8, kDown = 4;  // lanes beside and below each other

// X: type of x and y. kRounds: x is rounded to bfloat16 first.
template <typename X, typename W, bool kRounds, int kRows>
__global__ void __launch_bounds__(kWarps * 32)
    GroupedColumnsKernel(const __grid_constant__ GroupedRowsCall call) {
  constexpr int kCount = 16 / sizeof(W), kColumns = kAcross * kCount, kLoads = 4;
  constexpr int64_t kStep = kWarps * kDown;
  __shared__ float sums[kWarps][kRows][kColumns];
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int column_block = static_cast<int>(blockIdx.x) / call.tiles;
  const ExpertTile tile = call.order.TileAt(static_cast<int>(blockIdx.x) % call.tiles,
                                            column_block == 0 && threadIdx.x == 0);
  if (tile.count == 0) return;
  const int64_t column0 = int64_t{column_block} * kColumns;
  const int64_t column = column0 + lane % kAcross * kCount;
  const auto* w = static_cast<const W*>(call.weights.At(max(tile.expert, 0)).data);
  // Of no expert, or no column: zeros.
  const int64_t end = tile.expert < 0 || column >= call.n ? 0 : call.k;
  const X* x[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int64_t row = r < tile.count ? call.order.SourceRowAt(tile, r) : 0;
    x[r] = static_cast<const X*>(call.x) + row * call.k;
  }
  float own[kRows][kCount] = {};
  for (int64_t round = warp * kDown + lane / kAcross; round < end; round += kLoads * kStep) {
    uint4 pieces[kLoads] = {};
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int64_t k = round + i * kStep;
      if (k < end) pieces[i] = __ldcs(reinterpret_cast<const uint4*>(w + k * call.n + column));
    }
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int64_t k = round + i * kStep;
      const auto numbers = *reinterpret_cast<const Vector<W, kCount>*>(&pieces[i]);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        if (k >= end || r >= tile.count) break;
        float value = ToFloat(x[r][k]);
        if constexpr (kRounds) value = ToFloat(FromFloat<Bfloat>(value));
#pragma unroll
        for (int c = 0; c < kCount; ++c) own[r][c] += value * ToFloat(numbers.at[c]);
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int c = 0; c < kCount; ++c) {
      for (int distance = kAcross; distance < 32; distance *= 2) {
        own[r][c] += __shfl_xor_sync(0xFFFFFFFFu, own[r][c], distance);
      }
      if (lane < kAcross) sums[warp][r][lane * kCount + c] = own[r][c];
    }
  }
  __syncthreads();
  const int r = static_cast<int>(threadIdx.x) / kColumns;
  const int64_t to = column0 + static_cast<int>(threadIdx.x) % kColumns;
  if (r >= kRows || r >= tile.count || to >= call.n) return;
  float total = 0;
  for (int i = 0; i < kWarps; ++i) total += sums[i][r][to - column0];
  static_cast<X*>(call.y)[call.order.RowAt(tile, r) * call.n + to] = FromFloat<X>(total);
}

template <typename X, typename W, bool kRounds>
Error LaunchOf(const GroupedRowsCall& call, int tile_rows, Stream stream) {
  constexpr int64_t kColumns = kAcross * 16 / sizeof(W);
  const int64_t blocks = CeilDiv(call.n, kColumns) * call.tiles;
  if (blocks > INT32_MAX) return kTooLarge;
  const LaunchShape shape{.grid = static_cast<unsigned>(blocks), .block = kWarps * 32};
  return tile_rows == 1
             ? Launch(GroupedColumnsKernel<X, W, kRounds, 1>, shape, stream, call)
             : Launch(GroupedColumnsKernel<X, W, kRounds, kFloatTileRows>, shape, stream, call);
}

}  // namespace

Error LaunchGroupedColumns(const GroupedProductParams& params, const GroupedRowsCall& call,
                           int tile_rows, Stream stream) {
  if (params.type != params.weight.type) {
    return LaunchOf<float, Bfloat, true>(call, tile_rows, stream);
  }
  return ForFloatType(params.type, [&]<typename T>() -> Error {
    return LaunchOf<T, T, false>(call, tile_rows, stream);
  });
}

}  // namespace pagefuse::cuda
