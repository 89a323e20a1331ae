// SPDX-License-Identifier: Apache-2.0
// Products in float of any kind, a tile of y a block: what no faster kernel takes. Device code alone.
#pragma once

#include "pagefuse/ops/kernels/cuda/launch_kernel.h"
#include "pagefuse/ops/kernels/cuda/product_parts.h"
#include "pagefuse/ops/kernels/cuda/ptx.h"
#include "pagefuse/ops/kernels/cuda/strided.h"

namespace pagefuse::cuda {

inline constexpr int kTile = 64, kTileDepth = 16, kTileThreads = 256;
// Outputs of a thread: rows and columns.
inline constexpr int kOwn = 4;

struct TileCall {
  int64_t m = 0, n = 0, k = 0;
  const void* x = nullptr;
  int64_t x_row_step = 0, x_k_step = 0;
  WeightView weight, up;
  int64_t weight_elements = 0;  // from a matrix of W to the next, in elements
  Epilogue epilogue;
  Strided<2> batch;    // of x and W
  uint32_t first = 0;  // product of the launch
};

// A part of an operand in shared memory, transposed: [depth][row], padded so that rows lie in other banks.
using TilePart = float[kTileDepth][kTile + 4];

// Fills it with at(row, depth), neighbouring threads along the depth where that is how memory runs.
template <typename F>
__device__ void FillPart(TilePart& part, bool along_depth, const F& at) {
#pragma unroll
  for (int i = 0; i < kTile * kTileDepth / kTileThreads; ++i) {
    const int index = i * kTileThreads + static_cast<int>(threadIdx.x);
    const int depth = along_depth ? index % kTileDepth : index / kTile;
    const int row = along_depth ? index / kTileDepth : index % kTile;
    part[depth][row] = at(row, depth);
  }
}

// X: type of x and y. W: what reads the weight. kRounds: x is rounded to bfloat16 first.
template <typename X, typename W, bool kGated, bool kRounds>
__global__ void __launch_bounds__(kTileThreads) TileKernel(const __grid_constant__ TileCall call) {
  __shared__ TilePart x_part, w_part[kGated ? 2 : 1];
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  int64_t matrices[2];
  const uint32_t product = call.first + blockIdx.z;
  call.batch.PlacesOf(product, 2, matrices);
  const X* x = static_cast<const X*>(call.x) + matrices[0] * call.m * call.k;
  const int64_t row0 = int64_t{blockIdx.y} * kTile, column0 = int64_t{blockIdx.x} * kTile;
  const int own_row = static_cast<int>(threadIdx.x) / (kTile / kOwn) * kOwn;
  const int own_column = static_cast<int>(threadIdx.x) % (kTile / kOwn) * kOwn;
  // Of numbers; codes are one matrix.
  const int64_t behind = matrices[1] * call.weight_elements;
  float sums[kGated ? 2 : 1][kOwn][kOwn] = {};
  for (int64_t k0 = 0; k0 < call.k; k0 += kTileDepth) {
    FillPart(x_part, call.x_k_step == 1, [&](int row, int depth) {
      const int64_t r = row0 + row, k = k0 + depth;
      if (r >= call.m || k >= call.k) return 0.0f;
      const float value = ToFloat(x[r * call.x_row_step + k * call.x_k_step]);
      return kRounds ? ToFloat(FromFloat<Bfloat>(value)) : value;
    });
#pragma unroll
    for (int j = 0; j < (kGated ? 2 : 1); ++j) {
      const WeightView& w = j == 0 ? call.weight : call.up;
      FillPart(w_part[j], w.k_step == 1, [&](int column, int depth) {
        const int64_t n = column0 + column, k = k0 + depth;
        return n < call.n && k < call.k ? W::At(w, k, n, behind) : 0.0f;
      });
    }
    __syncthreads();
#pragma unroll
    for (int depth = 0; depth < kTileDepth; ++depth) {
      const auto a = *reinterpret_cast<const float4*>(&x_part[depth][own_row]);
      const float own[kOwn] = {a.x, a.y, a.z, a.w};
#pragma unroll
      for (int j = 0; j < (kGated ? 2 : 1); ++j) {
        const auto b = *reinterpret_cast<const float4*>(&w_part[j][depth][own_column]);
        const float others[kOwn] = {b.x, b.y, b.z, b.w};
#pragma unroll
        for (int r = 0; r < kOwn; ++r) {
#pragma unroll
          for (int c = 0; c < kOwn; ++c) sums[j][r][c] += own[r] * others[c];
        }
      }
    }
    __syncthreads();
  }
  const int64_t y_behind = int64_t{product} * call.m * call.n;
#pragma unroll
  for (int r = 0; r < kOwn; ++r) {
#pragma unroll
    for (int c = 0; c < kOwn; ++c) {
      const int64_t row = row0 + own_row + r, column = column0 + own_column + c;
      if (row >= call.m || column >= call.n) continue;
      if constexpr (kGated) {
        call.epilogue.WriteGated<X>(row, column, sums[0][r][c], sums[1][r][c], y_behind);
      } else {
        call.epilogue.Write<X>(row, column, sums[0][r][c], y_behind);
      }
    }
  }
}

// Rows of tiles and products that a grid has.
inline constexpr int64_t kMostTileRows = 65535;

template <typename X, typename W, bool kRounds = false>
Error LaunchTiles(const ProductParams& params, Stream stream) {
  const std::vector<int64_t>&x_steps = params.x_steps, &w_steps = params.weight_steps;
  const StridedAxes<2> batch(params.batch, {x_steps, w_steps});
  if (batch.outer_axes() > 0 || params.m > kMostTileRows * kTile) return kTooLarge;
  TileCall call{.m = params.m, .n = params.n, .k = params.k, .x = params.x};
  call.x_row_step = params.x_turned ? 1 : params.k;
  call.x_k_step = params.x_turned ? params.m : 1;
  call.weight = WeightView::Of(params.weight, params.n, params.k);
  call.up = WeightView::Of(params.up, params.n, params.k);
  call.weight_elements = params.n * params.k;
  call.epilogue = Epilogue::Of(params);
  call.batch = batch.Walked();
  const int64_t products = batch.size();
  for (int64_t first = 0; first < products; first += kMostTileRows) {
    call.first = static_cast<uint32_t>(first);
    const LaunchShape shape{
        .grid = dim3(static_cast<unsigned>(CeilDiv(params.n, kTile)),
                     static_cast<unsigned>(CeilDiv(params.m, kTile)),
                     static_cast<unsigned>(std::min(products - first, kMostTileRows))),
        .block = kTileThreads};
    const Error error = params.gated()
                            ? Launch(TileKernel<X, W, true, kRounds>, shape, stream, call)
                            : Launch(TileKernel<X, W, false, kRounds>, shape, stream, call);
    if (error != 0) return error;
  }
  return 0;
}

}  // namespace pagefuse::cuda
