// SPDX-License-Identifier: Apache-2.0
// Products of one row with bfloat16 weights in rows that registers hold all at once. Device code alone.
//
// A block makes the sums of a few rows of W, of which each lane has the same few pieces: so it reads those of x once for all
// of them, into registers. Where weights are constant, a lane asks for all of its own before the kernel waits for the one in
// front of it. Blocks are small, so that they find room beside those of that one. So small products behind each other overlap.
#pragma once

#include <bit>

#include "pagefuse/ops/kernels/cuda/row_bf16.h"
#include "pagefuse/ops/kernels/cuda/small_x_bf16.h"

namespace pagefuse::cuda {

// How blocks lie over W.
template <int kPiecesOfLane, int kMostWarps, int kRowsOfBlock, int kBlocksOfMultiprocessor>
struct ShortRowShape {
  static constexpr int kPieces = kPiecesOfLane;  // of a row, at most
  static constexpr int kWarps = kMostWarps;      // of a block, as many as a row needs
  static constexpr int kRows = kRowsOfBlock;     // of W; those of a gated product are two a column
  static constexpr int kResidents = kBlocksOfMultiprocessor;  // at least
  static constexpr int kMostPieces = kPieces * kWarps * 32;
};
// Of short rows for any number of columns, and of long ones for so few that all blocks run at once.
template <bool kGated>
using ShortRows = ShortRowShape<1, 10, kGated ? 8 : 4, kGated ? 3 : 4>;
template <bool kGated>
using LongRows = ShortRowShape<4, 7, kGated ? 4 : 3, kGated ? 2 : 3>;

// Each lane's sums over the warp: those of row i go to the lanes of part i of `kParts`, a power of two.
template <int kParts>
__device__ float SumOfPart(float (&sums)[kParts]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int distance = 16;
#pragma unroll
  for (int half = kParts / 2; half > 0; half /= 2, distance /= 2) {
    const bool is_upper = (lane & distance) != 0;
#pragma unroll
    for (int i = 0; i < half; ++i) {
      const float given = is_upper ? sums[i] : sums[i + half];
      const float kept = is_upper ? sums[i + half] : sums[i];
      sums[i] = kept + __shfl_xor_sync(0xFFFFFFFFu, given, distance);
    }
  }
  float sum = sums[0];
#pragma unroll
  for (; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, distance);
  return sum;
}

// X: type of x and y.
template <typename X, bool kGated, class Shape>
__global__ void __launch_bounds__(Shape::kWarps * 32, Shape::kResidents)
    ShortRowBf16Kernel(const __grid_constant__ SmallCall call) {
  constexpr int kMatrices = kGated ? 2 : 1, kColumns = Shape::kRows / kMatrices;
  constexpr int kParts = std::bit_ceil(static_cast<unsigned>(Shape::kRows));
  constexpr int kPartLanes = 32 / kParts;
  __shared__ float parts[Shape::kWarps][kParts];
  if (!call.constant_weights) ptx::WaitForKernelBefore();
  const int own = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const int pieces = call.plan.row_pieces;
  const auto n = static_cast<int>(call.n), column0 = static_cast<int>(blockIdx.x) * kColumns;
  uint4 words[Shape::kRows][Shape::kPieces];
#pragma unroll
  for (int row = 0; row < Shape::kRows; ++row) {
    const Bfloat* matrix = row % kMatrices == 0 ? call.weight : call.up;
    const int64_t column = int64_t{blockIdx.y} * n + min(column0 + row / kMatrices, n - 1);
    const auto* w = reinterpret_cast<const uint4*>(matrix) + column * pieces;
#pragma unroll
    for (int i = 0; i < Shape::kPieces; ++i) {
      const int piece = own + i * threads;
      words[row][i] = piece < pieces ? __ldcs(w + piece) : uint4{};
    }
  }
  ptx::LetNextKernelBegin();
  if (call.constant_weights) ptx::WaitForKernelBefore();
  const X* from = static_cast<const X*>(call.x) + SmallStack::Product() * pieces * kOwnElements;
  XPiece<X> x[Shape::kPieces];
#pragma unroll
  for (int i = 0; i < Shape::kPieces; ++i) {
    if (own + i * threads < pieces) x[i].Load(from, own + i * threads);
  }
  float sums[Shape::kRows][2] = {};
#pragma unroll
  for (int i = 0; i < Shape::kPieces; ++i) {
    const uint4 rounded = x[i].Rounded();
#pragma unroll
    for (int row = 0; row < Shape::kRows; ++row) AddProducts(words[row][i], rounded, sums[row]);
  }
  float padded[kParts] = {};
#pragma unroll
  for (int row = 0; row < Shape::kRows; ++row) padded[row] = sums[row][0] + sums[row][1];
  float sum = SumOfPart<kParts>(padded);
  const int lane = own % 32, part = lane / kPartLanes, first = lane % kPartLanes;
  if (first == 0) parts[own / 32][part] = sum;
  __syncthreads();
  if (own >= 32) return;
  sum = 0;
  for (int warp = first; warp < threads / 32; warp += kPartLanes) sum += parts[warp][part];
#pragma unroll
  for (int distance = kPartLanes / 2; distance > 0; distance /= 2) {
    sum += __shfl_xor_sync(0xFFFFFFFFu, sum, distance);
  }
  const float up = kGated ? __shfl_down_sync(0xFFFFFFFFu, sum, kPartLanes) : 0.0f;
  const int column = column0 + part / kMatrices;
  if (first != 0 || part % kMatrices != 0 || part >= Shape::kRows || column >= n) return;
  if constexpr (kGated) {
    call.epilogue.WriteGated<X>(0, column, sum, up);
  } else {
    call.epilogue.Write<X>(0, column, sum, SmallStack::Product() * n);
  }
}

template <typename X, bool kGated, class Shape>
Error LaunchShortRow(const ProductParams& params, Stream stream) {
  const int64_t pieces = params.k / kOwnElements;
  const int64_t blocks = CeilDiv(params.n, Shape::kRows / (kGated ? 2 : 1));
  const int64_t warps = CeilDiv(pieces, 32 * Shape::kPieces);
  const LaunchShape shape{.grid = StackOf(params).Grid(blocks),
                          .block = static_cast<unsigned>(warps * 32)};
  const SmallPlan plan{.row_pieces = static_cast<int>(pieces)};
  return Launch(ShortRowBf16Kernel<X, kGated, Shape>, shape, stream, SmallCall::Of(params, plan));
}

}  // namespace pagefuse::cuda
