// SPDX-License-Identifier: Apache-2.0
// Products of one row with bfloat16 weights in rows, bound by the memory's bandwidth. Device code alone.
//
// A warp, or some of them, makes one sum: a column of y is one row of W, read in runs of 512 bytes, which memory likes
// better than the short pieces that tensor cores want. A lane asks for all its weights before the kernel waits for the
// one in front of it.
#pragma once

#include "pagefuse/ops/kernels/cuda/small_bf16.h"

namespace pagefuse::cuda {

inline constexpr int kRowWarps = 8;  // of a block

// kLoads pieces of 8 elements a lane, kSplit warps a row of W.
template <int kLoads, int kSplit>
inline constexpr int kMostRowPieces = kLoads* kSplit * 32;

__device__ inline float LowFloat(uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ inline float HighFloat(uint32_t pair) { return __uint_as_float(pair & 0xFFFF0000u); }

// Two sums, so that one step need not wait for the one before.
__device__ inline void AddProducts(uint4 w, uint4 x, float (&sums)[2]) {
  const uint32_t w_pairs[4] = {w.x, w.y, w.z, w.w}, x_pairs[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    sums[0] = fmaf(LowFloat(w_pairs[i]), LowFloat(x_pairs[i]), sums[0]);
    sums[1] = fmaf(HighFloat(w_pairs[i]), HighFloat(x_pairs[i]), sums[1]);
  }
}

// x as bfloat16 in shared memory, with zeros behind it. It is copied there past the registers, which are full of
// weights, through the first cache, which has it for all blocks of a multiprocessor; floats are rounded where they
// lie then.
template <typename X, int kMostPieces>
class RoundedRow {
  static constexpr int kWords = sizeof(X) == sizeof(float) ? 2 : 1;  // of a piece

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
        uint32_t pairs[4];
        LoadRounded(reinterpret_cast<const float*>(shared + 2 * i), true, pairs);
        shared[Place(i)] = {pairs[0], pairs[1], pairs[2], pairs[3]};
      });
    }
    __syncthreads();
  }
  __device__ uint4 operator[](int piece) const { return shared_[Place(piece)]; }

 private:
  template <typename F>
  __device__ static void ForOwnPieces(const F& f) {
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < kMostPieces; i += kRowWarps * 32) f(i);
  }
  // In place of its floats, so that 8 neighbours lie in different banks.
  __device__ static int Place(int piece) { return kWords == 1 ? piece : 2 * piece + piece / 4 % 2; }

  const uint4* shared_;
};

// The sum of all lanes of the warp.
__device__ inline float SumOfWarp(const float (&sums)[2]) {
  float sum = sums[0] + sums[1];
#pragma unroll
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, step);
  return sum;
}

// X: type of x and y. The two rows of a gated column belong to different warps. At least 5 blocks fit a multiprocessor,
// so that those of a long row, which are few, all run at once.
template <typename X, bool kGated, int kLoads, int kSplit>
__global__ void __launch_bounds__(kRowWarps * 32, 5)
    RowBf16Kernel(const __grid_constant__ SmallCall call) {
  using Row = RoundedRow<X, kMostRowPieces<kLoads, kSplit>>;
  constexpr int kMatrices = kGated ? 2 : 1, kColumns = kRowWarps / kSplit / kMatrices;
  constexpr int kStep = kSplit * 32;
  __shared__ uint4 shared_x[Row::kShared];
  __shared__ float parts[kRowWarps];
  if (!call.constant_weights) ptx::WaitForKernelBefore();
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int pieces = static_cast<int>(call.k / kOwnElements);
  const int first = warp % kSplit * 32 + lane, left = pieces - first;
  const auto n = static_cast<int>(call.n), column0 = static_cast<int>(blockIdx.x) * kColumns;
  const int64_t column = min(column0 + warp / (kSplit * kMatrices), n - 1);
  const Bfloat* matrix = kGated && warp / kSplit % 2 == 1 ? call.up : call.weight;
  const auto* w = reinterpret_cast<const uint4*>(matrix + column * call.k) + first;
  uint4 words[kLoads];
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    words[i] = i * kStep < left ? __ldcs(w + i * kStep) : uint4{};
  }
  ptx::LetNextKernelBegin();
  if (call.constant_weights) ptx::WaitForKernelBefore();
  const Row x(call.x, pieces, shared_x);
  float sums[2] = {};
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    AddProducts(words[i], x[first + i * kStep], sums);
  }
  const float sum = SumOfWarp(sums);
  if constexpr (kSplit * kMatrices == 1) {
    if (lane == 0 && column0 + warp < n) call.epilogue.Write<X>(0, column0 + warp, sum);
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
    call.epilogue.Write<X>(0, column0 + own, totals[0]);
  }
}

// Many columns of one warp each, as a head has them: blocks stay, with x in shared memory, and a lane asks for a piece of
// the next column where it has computed that of the last one.
inline constexpr int kStayingBlocks = 4;  // of a multiprocessor
template <typename X, int kLoads>
__global__ void __launch_bounds__(kRowWarps * 32, kStayingBlocks)
    StayingRowBf16Kernel(const __grid_constant__ SmallCall call) {
  using Row = RoundedRow<X, kMostRowPieces<kLoads, 1>>;
  __shared__ uint4 shared_x[Row::kShared];
  if (!call.constant_weights) ptx::WaitForKernelBefore();
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int pieces = static_cast<int>(call.k / kOwnElements);
  const int64_t step = int64_t{gridDim.x} * kRowWarps;
  int64_t column = int64_t{blockIdx.x} * kRowWarps + warp;
  const auto* w = reinterpret_cast<const uint4*>(call.weight + column * call.k) + lane;
  int left = column < call.n ? pieces - lane : 0;
  const auto load = [&](int i) { return i * 32 < left ? __ldcs(w + i * 32) : uint4{}; };
  uint4 words[kLoads];
#pragma unroll
  for (int i = 0; i < kLoads; ++i) words[i] = load(i);
  ptx::LetNextKernelBegin();
  if (call.constant_weights) ptx::WaitForKernelBefore();
  const Row x(call.x, pieces, shared_x);
  for (; column < call.n; column += step) {
    w += step * pieces;
    if (column + step >= call.n) left = 0;
    float sums[2] = {};
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      AddProducts(words[i], x[lane + i * 32], sums);
      words[i] = load(i);
    }
    const float sum = SumOfWarp(sums);
    if (lane == 0) call.epilogue.Write<X>(0, column, sum);
  }
}

template <typename X, bool kGated, int kLoads, int kSplit>
Error LaunchRow(const ProductParams& params, Stream stream) {
  constexpr int kColumns = kRowWarps / kSplit / (kGated ? 2 : 1);
  if constexpr (kColumns == kRowWarps) {
    constexpr int kRounds = 4;  // from here on blocks stay
    const int64_t staying = int64_t{Multiprocessors()} * kStayingBlocks;
    if (params.n >= kRounds * staying * kColumns) {
      const LaunchShape shape{.grid = static_cast<unsigned>(staying), .block = kRowWarps * 32};
      return Launch(StayingRowBf16Kernel<X, kLoads>, shape, stream, SmallCall::Of(params));
    }
  }
  const LaunchShape shape{.grid = static_cast<unsigned>(CeilDiv(params.n, kColumns)),
                          .block = kRowWarps * 32};
  return Launch(RowBf16Kernel<X, kGated, kLoads, kSplit>, shape, stream, SmallCall::Of(params));
}

}  // namespace pagefuse::cuda
