// SPDX-License-Identifier: Apache-2.0
// Grouped products of any kind in float, a tile of y a block: what no faster kernel takes.
#include "pagefuse/ops/kernels/cuda/grouped_products_rows.h"
#include "pagefuse/ops/kernels/cuda/product_tile.h"

namespace pagefuse::cuda {
namespace {

// X: type of x and y. W: what reads the weight. kRounds: x is rounded to bfloat16 first.
template <typename X, typename W, bool kRounds>
__global__ void __launch_bounds__(kTileThreads, 2)
    GroupedTileKernel(const __grid_constant__ GroupedRowsCall call) {
  __shared__ TilePart x_part, w_part;
  __shared__ const X* x_rows[kTile];
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  const int thread = static_cast<int>(threadIdx.x);
  const ExpertTile tile = call.order.TileAt(static_cast<int>(blockIdx.x), false);
  if (tile.count == 0) return;
  if (thread < kTile) {
    const int64_t row = thread < tile.count ? call.order.SourceRowAt(tile, thread) : -1;
    x_rows[thread] = row < 0 ? nullptr : static_cast<const X*>(call.x) + row * call.k;
  }
  __syncthreads();
  const int64_t column0 = int64_t{blockIdx.y} * kTile;
  const int own_row = thread / (kTile / kOwn) * kOwn, own_column = thread % (kTile / kOwn) * kOwn;
  const WeightView w = call.weights.At(max(tile.expert, 0));
  const int64_t end = tile.expert < 0 ? 0 : call.k;  // of none: zeros
  float sums[kOwn][kOwn] = {};
  for (int64_t k0 = 0; k0 < end; k0 += kTileDepth) {
    FillPart(x_part, true, [&](int row, int depth) {
      if (x_rows[row] == nullptr || k0 + depth >= end) return 0.0f;
      const float value = ToFloat(x_rows[row][k0 + depth]);
      return kRounds ? ToFloat(FromFloat<Bfloat>(value)) : value;
    });
    FillPart(w_part, w.k_step == 1, [&](int column, int depth) {
      const int64_t n = column0 + column, k = k0 + depth;
      return n < call.n && k < end ? W::At(w, k, n) : 0.0f;
    });
    __syncthreads();
#pragma unroll
    for (int depth = 0; depth < kTileDepth; ++depth) {
      const auto a = *reinterpret_cast<const float4*>(&x_part[depth][own_row]);
      const auto b = *reinterpret_cast<const float4*>(&w_part[depth][own_column]);
      const float rows[kOwn] = {a.x, a.y, a.z, a.w}, columns[kOwn] = {b.x, b.y, b.z, b.w};
#pragma unroll
      for (int r = 0; r < kOwn; ++r) {
#pragma unroll
        for (int c = 0; c < kOwn; ++c) sums[r][c] += rows[r] * columns[c];
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int r = 0; r < kOwn; ++r) {
    if (own_row + r >= tile.count) break;
    X* y = static_cast<X*>(call.y) + call.order.RowAt(tile, own_row + r) * call.n;
#pragma unroll
    for (int c = 0; c < kOwn; ++c) {
      const int64_t column = column0 + own_column + c;
      if (column < call.n) y[column] = FromFloat<X>(sums[r][c]);
    }
  }
}

template <typename X, typename W, bool kRounds = false>
Error LaunchOf(const GroupedRowsCall& call, Stream stream) {
  const int64_t columns = CeilDiv(call.n, kTile);
  if (columns > kMostTileRows) return kTooLarge;
  const LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(call.tiles), static_cast<unsigned>(columns)),
      .block = kTileThreads};
  return Launch(GroupedTileKernel<X, W, kRounds>, shape, stream, call);
}

}  // namespace

Error LaunchGroupedTiles(const GroupedProductParams& params, const GroupedRowsCall& call,
                         Stream stream) {
  if (params.weight.is_codes()) return LaunchOf<float, Codes<float>>(call, stream);
  if (params.type != params.weight.type) {
    return LaunchOf<float, Numbers<Bfloat>, true>(call, stream);
  }
  return ForFloatType(params.type,
                      [&]<typename T>() -> Error { return LaunchOf<T, Numbers<T>>(call, stream); });
}

}  // namespace pagefuse::cuda
