// SPDX-License-Identifier: Apache-2.0
// Partial results of splits of the keys joined to the outputs: a CTA some channels of a row, and in it slices that each add up some splits.
#include <algorithm>

#include "pagefuse/ops/kernels/cuda/launch_kernel.h"
#include "pagefuse/ops/kernels/cuda/ptx.h"
#include "pagefuse/ops/kernels/cuda/sparse_mla_results.h"

namespace pagefuse::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kMostSlices = 8;

constexpr float kNotWritten = -1;  // in place of a weight

// What each split's sums and values are multiplied by, and the row's own sums. For one warp.
__device__ RowSums WeighParts(const SinkResults& results, int64_t row, float* weights) {
  const auto sums_of = [&](int split) {
    return reinterpret_cast<const float2*>(results.partial_sums)[PartialOf(results, row, split)];
  };
  RowSums all;
  for (int i = LaneId(); i < results.splits; i += kWarp) all.max = fmaxf(all.max, sums_of(i).x);
  all.max = MaxOfLanes(all.max);
  for (int i = LaneId(); i < results.splits; i += kWarp) {
    const float2 part = sums_of(i);
    const bool some = !HasNoKey({part.x, part.y});
    weights[i] = some ? exp2f((part.x - all.max) * results.unit) : kNotWritten;
    if (some) all.sum += part.y * weights[i];
  }
  all.sum = SumOfLanes(all.sum);
  return all;
}

// Adds this slice's splits of `kCount` channels from d on.
template <int kCount>
__device__ void AddParts(const SinkResults& results, int64_t row, const float* weights, int d,
                         float (&sums)[4]) {
#pragma unroll(kCount == 1 ? 1 : 4)
  for (int i = static_cast<int>(threadIdx.y); i < results.splits;
       i += static_cast<int>(blockDim.y)) {
    if (weights[i] == kNotWritten) continue;
    const auto* from = reinterpret_cast<const Vector<float, kCount>*>(
        results.partial_values + PartialOf(results, row, i) * results.value_size + d);
    const Vector<float, kCount> values = *from;
#pragma unroll
    for (int k = 0; k < kCount; ++k) sums[k] += values.at[k] * weights[i];
  }
}

__global__ void __launch_bounds__(kThreads)
    SinkJoinKernel(const __grid_constant__ SinkResults results) {
  __shared__ float weights[kMostSplits];
  __shared__ float4 slices[kThreads];
  __shared__ float factor;
  __shared__ bool empty;
  ptx::WaitForKernelBefore();
  ptx::LetNextKernelBegin();
  const int64_t row = blockIdx.x;
  const int thread = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
  if (thread < kWarp) {
    const RowSums all = WeighParts(results, row, weights);
    if (thread == 0) {
      factor = FinishSums(results, row, HeadOf(results, row), all);
      empty = all.sum == 0;
    }
  }
  __syncthreads();
  const int n = results.value_size;
  const int d = 4 * static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x);
  if (n % 4 == 0) {
    float sums[4] = {};
    if (d < n) AddParts<4>(results, row, weights, d, sums);
    slices[thread] = make_float4(sums[0], sums[1], sums[2], sums[3]);
  } else {
#pragma unroll 1
    for (int k = 0; k < 4 && d + k < n; ++k) {
      float one[4] = {};
      AddParts<1>(results, row, weights, d + k, one);
      reinterpret_cast<float*>(slices + thread)[k] = one[0];
    }
  }
  __syncthreads();
  if (threadIdx.y != 0) return;
#pragma unroll 1
  for (int k = 0; k < 4 && d + k < n; ++k) {
    float total = 0;
#pragma unroll 4
    for (int slice = 0; slice < static_cast<int>(blockDim.y); ++slice) {
      total += reinterpret_cast<const float*>(slices + slice * blockDim.x + threadIdx.x)[k];
    }
    StoreElement(results, row * n + d + k, empty ? 0.0f : total * factor);
  }
}

// In whole pieces of 16 bytes, as values follow.
int64_t FloatsOfSums(const SinkResults& results) {
  return CeilDiv(2 * results.splits * results.rows, 4) * 4;
}

}  // namespace

// A round of CTAs takes as long as its tiles, and what a CTA does beside them costs as much as kFixed tiles.
int64_t CostOfSplits(const SplitWork& work, int64_t splits) {
  constexpr int64_t kFixed = 3;
  const int64_t rounds = CeilDiv(work.ctas * splits, std::max<int64_t>(work.slots, 1));
  return rounds * (CeilDiv(work.tiles, splits) + kFixed);
}

// Each partial result costs as much as a tile: it is written and read again.
int SplitsOf(const SplitWork& work) {
  const int64_t slots = std::max<int64_t>(work.slots, 1);
  const int64_t most = std::min<int64_t>(work.tiles, kMostSplits);
  int best = 1;
  int64_t least = INT64_MAX;
  for (int64_t splits = 1; splits == 1 || splits <= most; ++splits) {
    const int64_t join = splits > 1 ? work.ctas * splits / slots + 2 : 0;
    const int64_t cost = CostOfSplits(work, splits) + join;
    if (cost < least) best = static_cast<int>(splits), least = cost;
  }
  return best;
}

size_t PartialBytes(const SinkResults& results) {
  if (results.splits == 1) return 0;
  const int64_t values = results.splits * results.rows * results.value_size;
  return static_cast<size_t>(FloatsOfSums(results) + values) * sizeof(float);
}

void PlacePartials(void* workspace, SinkResults& results) {
  if (results.splits == 1) return;
  results.partial_sums = static_cast<float*>(workspace);
  results.partial_values = results.partial_sums + FloatsOfSums(results);
}

Error LaunchSinkJoin(const SinkResults& results, Stream stream) {
  if (results.rows == 0 || results.value_size == 0) return 0;
  if (results.rows > INT32_MAX) return kTooLarge;
  const unsigned slices = results.splits > 8 ? kMostSlices : 2;
  const unsigned lanes = kThreads / slices;
  const auto parts = static_cast<unsigned>(CeilDiv(results.value_size, 4 * lanes));
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(results.rows), parts),
                          .block = dim3(lanes, slices)};
  return Launch(SinkJoinKernel, shape, stream, results);
}

}  // namespace pagefuse::cuda
