// SPDX-License-Identifier: Apache-2.0
// Products of one row with bfloat16 weights in rows that registers hold all at once. Device code alone.
//
// A warp, or some of them, makes one sum and ends. Where weights are constant, a lane asks for all of its own before the
// kernel waits for the one in front of it. Blocks are small, so that they find room beside those of that one. So small
// products behind each other overlap.
#pragma once

#include "pagefuse/ops/kernels/cuda/row_bf16.h"
#include "pagefuse/ops/kernels/cuda/small_x_bf16.h"

namespace pagefuse::cuda {

inline constexpr int kShortRowWarps = 8;   // of a block
inline constexpr int kShortRowBlocks = 5;  // of a multiprocessor, at least

// kLoads pieces a lane, kSplit warps a row of W.
template <int kLoads, int kSplit>
inline constexpr int kMostRowPieces = kLoads* kSplit * 32;

// Columns of a block. The two rows of a gated one belong to different warps.
template <bool kGated, int kSplit>
inline constexpr int kShortRowColumns = kShortRowWarps / kSplit / (kGated ? 2 : 1);

// x as bfloat16 in shared memory, with zeros behind it. It is copied there past the registers, which are full of
// weights, through the first cache, which has it for all blocks of a multiprocessor; floats are rounded where they
// lie then.
template <typename X, int kMostPieces>
class RoundedRow {
  static constexpr int kWords = XPiece<X>::kWords;

 public:
  static constexpr int kShared = kMostPieces * kWords;

  __device__ RoundedRow(const void* x, int pieces, uint4* shared) : shared_(shared) {
    const auto* from = static_cast<const uint4*>(x);
    ForOwnPieces([&](int i) {
      const bool there = i < pieces;
#pragma unroll
      for (int word = kWords * i; word < kWords * (i + 1); ++word) {
        ptx::CopyAsync16Cached(shared + word, from + (there ? word : 0), there ? 16 : 0);
      }
    });
    ptx::CommitCopies();
    ptx::WaitForCopies<0>();
    if constexpr (kWords == 2) {
      // What this thread copied itself.
      ForOwnPieces([&](int i) {
        XPiece<X> piece;
        piece.Load(shared, i);
        shared[Place(i)] = piece.Rounded();
      });
    }
    __syncthreads();
  }
  __device__ uint4 operator[](int piece) const { return shared_[Place(piece)]; }

 private:
  template <typename F>
  __device__ static void ForOwnPieces(const F& f) {
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < kMostPieces; i += kShortRowWarps * 32) f(i);
  }
  // In place of its floats, so that 8 neighbours lie in different banks.
  __device__ static int Place(int piece) { return kWords == 1 ? piece : 2 * piece + piece / 4 % 2; }

  const uint4* shared_;
};

// X: type of x and y.
template <typename X, bool kGated, int kLoads, int kSplit>
__global__ void __launch_bounds__(kShortRowWarps * 32, kShortRowBlocks)
    ShortRowBf16Kernel(const __grid_constant__ SmallCall call) {
  using Row = RoundedRow<X, kMostRowPieces<kLoads, kSplit>>;
  constexpr int kMatrices = kGated ? 2 : 1, kColumns = kShortRowColumns<kGated, kSplit>;
  constexpr int kStep = kSplit * 32;
  __shared__ uint4 shared_x[Row::kShared];
  __shared__ float parts[kShortRowWarps];
  if (!call.constant_weights) ptx::WaitForKernelBefore();
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int pieces = call.plan.row_pieces;
  const int first = warp % kSplit * 32 + lane, left = pieces - first;
  const auto n = static_cast<int>(call.n), column0 = static_cast<int>(blockIdx.x) * kColumns;
  const int64_t column = min(column0 + warp / (kSplit * kMatrices), n - 1);
  const Bfloat* matrix = kGated && warp / kSplit % 2 == 1 ? call.up : call.weight;
  const auto* w =
      reinterpret_cast<const uint4*>(matrix) + (int64_t{blockIdx.y} * n + column) * pieces + first;
  uint4 words[kLoads];
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    words[i] = i * kStep < left ? __ldcs(w + i * kStep) : uint4{};
  }
  ptx::LetNextKernelBegin();
  if (call.constant_weights) ptx::WaitForKernelBefore();
  const Row x(static_cast<const X*>(call.x) + SmallStack::Product() * pieces * kOwnElements, pieces,
              shared_x);
  float sums[2] = {};
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    AddProducts(words[i], x[first + i * kStep], sums);
  }
  const float sum = SumOfWarp(sums);
  if constexpr (kSplit * kMatrices == 1) {
    if (lane == 0 && column0 + warp < n) {
      call.epilogue.Write<X>(0, column0 + warp, sum, SmallStack::Product() * n);
    }
    return;
  }
  if (lane == 0) parts[warp] = sum;
  __syncthreads();
  const int own = static_cast<int>(threadIdx.x);
  if (own >= kColumns || column0 + own >= n) return;
  float totals[kMatrices] = {};
#pragma unroll
  for (int i = 0; i < kMatrices * kSplit; ++i) {
    totals[i / kSplit] += parts[own * kMatrices * kSplit + i];
  }
  if constexpr (kGated) {
    call.epilogue.WriteGated<X>(0, column0 + own, totals[0], totals[1]);
  } else {
    call.epilogue.Write<X>(0, column0 + own, totals[0], SmallStack::Product() * n);
  }
}

template <typename X, bool kGated, int kLoads, int kSplit>
Error LaunchShortRow(const ProductParams& params, Stream stream) {
  const int64_t blocks = CeilDiv(params.n, kShortRowColumns<kGated, kSplit>);
  const LaunchShape shape{.grid = StackOf(params).Grid(blocks), .block = kShortRowWarps * 32};
  const auto kernel = ShortRowBf16Kernel<X, kGated, kLoads, kSplit>;
  const SmallPlan plan{.row_pieces = static_cast<int>(params.k / kOwnElements)};
  return Launch(kernel, shape, stream, SmallCall::Of(params, plan));
}

}  // namespace pagefuse::cuda
