// SPDX-License-Identifier: Apache-2.0
// The kernel of prompts and its launch, for .cu files with some of its instances: as FlashAttention-2 does it. Warps share tiles of keys and
// values, each with rows of its own; a tile is copied while the one before it is computed.
#pragma once

#include "pagefuse/ops/kernels/cuda/paged_attention_kernel.h"
#include "pagefuse/ops/kernels/cuda/paged_prefill_outputs.h"

namespace pagefuse::cuda {

// What a warp computes.
template <class Traits>
struct PrefillWarp {
  PrefillShared<Traits> shared;
  PrefillSoftmax<Traits> softmax;
  PrefillOutputs<Traits> outputs;

  __device__ explicit PrefillWarp(PrefillShared<Traits> memory) : shared(memory) {
    softmax.Clear();
    outputs.Clear();
  }
  // Of a tile with keys from `key` on, which all rows see or not.
  __device__ void Attend(const PagedAttention& p, int tile, int key, bool are_seen) {
    const int2 seen = *shared.seen();
    if (key >= seen.y || key + Traits::kKeys <= seen.x) return;
    const int first = FirstRow();
    PrefillScores<Traits> scores;
    scores.Multiply(shared.queries() + first * Traits::kRowBytes, shared.keys(tile % 2));
    float units[Traits::kBlocks][2], keep[Traits::kBlocks][2];
    UnitsOf(p, units);
    if (p.batch.rules.softcap > 0) scores.Cap(p.batch.rules.softcap, units);
    if (!are_seen) scores.Hide(shared.rows() + first, key, shared.present(tile));
    if (softmax.Weigh(scores, units, keep)) outputs.Scale(keep);
    outputs.Add(scores, shared.values(tile % 2));
  }
  // To the outputs, or to the partial results, through memory of this warp. finish(row, values) comes first.
  template <class F>
  __device__ void Store(const PagedAttention& p, int splits, float* values, F finish) {
    constexpr float kLn2 = 0.6931471805599453f;
    const int first = FirstRow();
    softmax.Join();
#pragma unroll
    for (int b = 0; b < Traits::kBlocks; ++b) {
      outputs.Store(b, values);
      __syncwarp();
#pragma unroll 1
      for (int i = 0; i < 16; ++i) {
        const PrefillRow row = shared.rows()[first + 16 * b + i];
        const int lane = i % 8 * 4, half = i / 8;
        const float reference = half == 0 ? softmax.reference[b][0] : softmax.reference[b][1];
        const float sum = half == 0 ? softmax.sum[b][0] : softmax.sum[b][1];
        const RowSums sums = {__shfl_sync(kAllLanes, reference, lane) * kLn2,
                              __shfl_sync(kAllLanes, sum, lane)};
        if (row.output < 0) continue;
        float* o = values + i * PrefillOutputs<Traits>::kStride;
        finish(row, o);
        StoreRowResult(p, splits, row.output, sums, o);
      }
      __syncwarp();
    }
  }

 private:
  static __device__ int FirstRow() { return ptx::ThreadIndex() / kWarp * Traits::kWarpRows; }
  // What brings products of each row to scores in log2.
  __device__ void UnitsOf(const PagedAttention& p, float (&units)[Traits::kBlocks][2]) const {
#pragma unroll
    for (int b = 0; b < Traits::kBlocks; ++b) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        units[b][half] = p.batch.scale * kLog2E;
        if constexpr (Traits::kHasFactors) {
          units[b][half] *= shared.factors()[FirstRow() + 16 * b + 8 * half + ptx::LaneIndex() / 4];
        }
      }
    }
  }
};

// The tile of this CTA. First come the sequences that have a token alone if they stand in front, then the last tokens of prompts, which see more keys
// than those before them.
__device__ inline int64_t OrderedTile(const AttentionBatch& batch) {
  const int64_t i = blockIdx.x;
  return i < batch.num_sequences ? i : gridDim.x - 1 - (i - batch.num_sequences);
}

template <class Traits>
__global__ void __launch_bounds__(Traits::kThreads, 2)
    PagedPrefillKernel(const __grid_constant__ PagedAttention p, const AttentionCut cut) {
  extern __shared__ __align__(1024) uint8_t prefill_shared[];
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  tiles::Task task;
  if (!tiles::FindTask(p, cut, OrderedTile(p.batch), task)) return;
  const PrefillShared<Traits> shared = {prefill_shared};
  // Read again wherever it is needed: registers are scarce.
  const PrefillKeys& keys = *shared.task();
  if (threadIdx.x == 0) *shared.task() = PrefillKeys::Of(p, task, cut.splits);
  LoadPrefillRows<Traits>(p, task, shared);
  __syncthreads();
  const int count = keys.CountTiles<Traits::kKeys>();
  for (int tile = 0; tile < 2; ++tile) {
    PlaceKeys<Traits>(p, keys, tile, BlockOf<Traits::kKeys>(p, keys, tile), shared);
  }
  __syncthreads();
  if (count > 0) CopyTile<Traits>(p, keys.kv_head, shared, 0);
  ptx::CommitCopies();
  PrefillWarp<Traits> warp(shared);
  bool broken = false;
#pragma unroll 1
  for (int tile = 0; tile < count; ++tile) {
    const bool are_seen = keys.AreSeen<Traits>(tile, shared.present(tile));
    ptx::WaitForCopies<0>();
    if (!are_seen) broken |= CleanValues<Traits>(shared, tile % 2);
    __syncthreads();
    const int block = BlockOf<Traits::kKeys>(p, keys, tile + 2);
    if (tile + 1 < count) CopyTile<Traits>(p, keys.kv_head, shared, (tile + 1) % 2);
    ptx::CommitCopies();
    warp.Attend(p, tile, keys.begin + tile * Traits::kKeys, are_seen);
    PlaceKeys<Traits>(p, keys, tile + 2, block, shared);
  }
  ptx::WaitForCopies<0>();
  broken = __syncthreads_or(broken) != 0;
  constexpr int kValues = 16 * PrefillOutputs<Traits>::kStride;  // of a warp
  static_assert(kPrefillWarps * kValues * 4 <= Traits::kTile.places());
  warp.Store(
      p, cut.splits,
      reinterpret_cast<float*>(prefill_shared) + static_cast<int>(threadIdx.x) / kWarp * kValues,
      [&](const PrefillRow& row, float* o) {
        if (broken) AddBroken<Traits>(p, keys, row, o);
      });
}

template <class Traits>
Error LaunchPrefillOf(const PagedAttention& p, const PrefillPlan& plan, Stream stream) {
  constexpr int kBytes = Traits::kTile.bytes();
  if (MostShared() < kBytes) return cudaErrorNotSupported;
  const auto kernel = PagedPrefillKernel<Traits>;
  const auto attribute = cudaFuncAttributeMaxDynamicSharedMemorySize;
  if (const Error error = cudaFuncSetAttribute(kernel, attribute, kBytes); error != 0) return error;
  const AttentionCut& cut = plan.cut;
  const dim3 grid(static_cast<unsigned>(cut.tiles),
                  static_cast<unsigned>(p.batch.num_kv_heads * cut.parts),
                  static_cast<unsigned>(cut.splits));
  return Launch(kernel, {grid, dim3(Traits::kThreads), size_t{kBytes}}, stream, p, cut);
}

// The kernel for a type of the caches, by the size of heads.
template <bool is_bfloat, bool exact>
Error LaunchPrefillFor(const PagedAttention& p, const PrefillPlan& plan, Stream stream) {
  static_assert(kNoPrefill == cudaErrorNotSupported);
  switch (p.batch.head_size) {
    case 64:
      return LaunchPrefillOf<PrefillTraits<is_bfloat, 64, exact>>(p, plan, stream);
    case 128:
      return LaunchPrefillOf<PrefillTraits<is_bfloat, 128, exact>>(p, plan, stream);
    case 256:
      return LaunchPrefillOf<PrefillTraits<is_bfloat, 256, exact>>(p, plan, stream);
    default:
      return cudaErrorNotSupported;
  }
}

}  // namespace pagefuse::cuda
