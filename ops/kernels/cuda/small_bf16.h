// SPDX-License-Identifier: Apache-2.0
// Products of up to 64 rows with bfloat16 weights in rows, bound by the memory's bandwidth. Device code alone.
//
// Blocks stay: each rounds x once, into its shared memory (small_x_bf16.h), while the first rows of W are on their way.
// Its warps then read row behind row and wait for nobody until sums meet: each copies what it will need next into stages
// of its own, be it of other rows. Where there are few rows of W, or much of x, warps of a block share K, and blocks of a
// cluster. What they summed up meets in shared memory, in a fixed order.
#pragma once

#include "pagefuse/ops/kernels/cuda/cluster.h"
#include "pagefuse/ops/kernels/cuda/launch_kernel.h"
#include "pagefuse/ops/kernels/cuda/ptx.h"
#include "pagefuse/ops/kernels/cuda/small_plan.h"
#include "pagefuse/ops/kernels/cuda/small_x_bf16.h"

namespace pagefuse::cuda {

// --- W ---

// Copies what a warp takes of W, in order: its groups one behind the other, of each its share of the block's part of K.
template <class Sums>
class WeightRing {
  static constexpr SmallShape kShape = Sums::kShape;
  static constexpr int kDown = 32 / kShape.run;           // rows of W that lanes take at once
  static constexpr int kCopies = kShape.columns / kDown;  // of a lane in a step

 public:
  // Asks for the first steps.
  template <class Place>
  __device__ WeightRing(const SmallCall& call, const Place& place, uint4* shared)
      : plan_(call.plan), none_(call.weight) {
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    const int own = place.share_begin + lane % kShape.run;
    const int64_t first = int64_t{place.first_group} * kShape.columns;
    const int column = place.group * kShape.columns + lane / kShape.run;
    const Bfloat* matrix = place.matrix == 0 ? call.weight : call.up;
    at_ = reinterpret_cast<const uint4*>(matrix) +
          (int64_t{blockIdx.y} * call.n + first + column) * plan_.row_pieces + place.part_begin +
          own;
    count_ = place.part_count - own;
    columns_step_ = place.group_step * kShape.columns;
    const int64_t left = min(call.n - first, int64_t{place.groups} * kShape.columns);
    columns_ = static_cast<int>(left) - column;
    ring_ = shared + warp * kShape.warp_pieces();
#pragma unroll 1
    for (; stage_ < kShape.stages - 1; ++stage_) Copy();
  }

  // The next step's pieces, in the order of Sums::PlaceOf, until the next call.
  __device__ const uint4* Next() {
    ptx::WaitForCopies<kShape.stages - 2>();
    __syncwarp();  // what other lanes copied is here too, and the stage of the step before may be written
    Copy();
    stage_ = (stage_ + 1) % kShape.stages;
    return ring_ + stage_ * kShape.stage_pieces();
  }

  // Until the warp's stages are free for something else. Nothing is behind the last group, but copies of no bytes.
  __device__ void End() const {
    ptx::WaitForCopies<0>();
    __syncwarp();
  }

 private:
  __device__ void Copy() {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    uint4* to = ring_ + stage_ * kShape.stage_pieces();
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const bool there = step_ * kShape.run < count_ && i * kDown < columns_;
      const uint4* from = at_ + int64_t{i} * kDown * plan_.row_pieces;
      ptx::CopyAsync16(to + Sums::PlaceOf(i * kDown + lane / kShape.run, lane % kShape.run),
                       there ? from : none_, there ? 16 : 0);
    }
    ptx::CommitCopies();
    at_ += kShape.run;
    if (++step_ < plan_.steps) return;
    step_ = 0;
    at_ += int64_t{columns_step_} * plan_.row_pieces - plan_.steps * kShape.run;
    columns_ -= columns_step_;
  }

  const SmallPlan& plan_;
  const void* none_;
  uint4* ring_;
  const uint4* at_;
  int count_;                   // pieces of a group up to the end of the part
  int columns_, columns_step_;  // up to the end of the cluster's, and from one group to the next
  int step_ = 0, stage_ = 0;
};

// --- the kernel ---

// A warp's groups among the next `groups` ones: f(group, sums).
template <class Sums, class Place, class F>
__device__ void AddGroups(const SmallCall& call, const Place& place, int groups,
                          WeightRing<Sums>& weights, const uint4* shared_x, const F& f) {
  constexpr SmallShape kShape = Sums::kShape;
  const SmallPlan& plan = call.plan;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const uint4* x[Sums::kTiles];
#pragma unroll
  for (int i = 0; i < Sums::kTiles; ++i) {
    // Of rows that are not there sums are those of the last one, which nobody reads.
    const int row = min(Sums::RowOf(lane) + 8 * i, call.m - 1);
    x[i] = shared_x + row * plan.x_stride(kShape) + place.share_begin + Sums::PieceOf(lane);
  }
#pragma unroll 1
  for (int group = place.group; group < groups; group += place.group_step) {
    Sums sums;
#pragma unroll 1
    for (int step = 0; step < plan.steps; ++step) {
      sums.Add(weights.Next(), x, step * kShape.run);
    }
    f(group, sums);
  }
}

// Adds up what warps that share groups have, into the first one's.
template <class Sums>
__device__ void JoinWarps(int groups, int split, float* sums) {
  constexpr int kCount = Sums::kShape.group_sums();
  for (int at = static_cast<int>(threadIdx.x); at < groups * kCount; at += Sums::kShape.threads()) {
    float* own = sums + at / kCount * split * kCount + at % kCount;
    float total = own[0];
    for (int i = 1; i < split; ++i) total += own[i * kCount];
    own[0] = total;
  }
}

// kWide sums beside each other, of all blocks of the cluster, in order.
template <int kWide>
__device__ void SumParts(const float* own, int parts, float (&totals)[kWide]) {
  float values[kMostSmallParts][kWide] = {};
#pragma unroll
  for (int i = 0; i < kMostSmallParts; ++i) {
    if (i < parts) ptx::SharedOfBlock(own, i, values[i]);
  }
#pragma unroll
  for (int e = 0; e < kWide; ++e) {
    totals[e] = values[0][e];
#pragma unroll
    for (int i = 1; i < kMostSmallParts; ++i) totals[e] += values[i][e];
  }
}

// X: type of x and y. `sums`: [matrices, round_groups, split, rows, columns], of which the first of shares are read.
template <typename X, bool kGated, class Sums>
__device__ void WriteSums(const SmallCall& call, int first_group, int groups, const float* sums) {
  constexpr SmallShape kShape = Sums::kShape;
  constexpr int kMatrices = kGated ? 2 : 1, kWide = kShape.columns % 4 == 0 ? 4 : 1;
  const int columns = groups * kShape.columns, parts = call.plan.parts;
  const int own =
      static_cast<int>(blockIdx.x) % parts * kShape.threads() + static_cast<int>(threadIdx.x);
  for (int at = own * kWide; at < call.m * columns; at += parts * kShape.threads() * kWide) {
    const int row = kShape.rows == 1 ? 0 : at / columns, column = at - row * columns;
    float totals[kMatrices][kWide];
#pragma unroll
    for (int i = 0; i < kMatrices; ++i) {
      const int group = i * call.plan.round_groups + column / kShape.columns;
      const int64_t behind = row * kShape.columns + column % kShape.columns;
      SumParts(sums + int64_t{group} * call.plan.split * kShape.group_sums() + behind, parts,
               totals[i]);
    }
#pragma unroll
    for (int e = 0; e < kWide; ++e) {
      const int64_t to = int64_t{first_group} * kShape.columns + column + e;
      if (to >= call.n) break;
      if constexpr (kGated) {
        call.epilogue.WriteGated<X>(row, to, totals[0][e], totals[1][e]);
      } else {
        call.epilogue.Write<X>(row, to, totals[0][e], SmallStack::Product() * call.m * call.n);
      }
    }
  }
}

// Where sums meet: of the warps of a block, and of the blocks of a cluster.
template <typename X, bool kGated, class Sums, class Place>
__device__ void AddAndJoin(const SmallCall& call, const Place& place, WeightRing<Sums>& weights,
                           uint4* ring, const uint4* x) {
  constexpr SmallShape kShape = Sums::kShape;
  const SmallPlan& plan = call.plan;
  const uint4* behind_x = x + call.m * plan.x_stride(kShape);
  auto* sums = reinterpret_cast<float*>(plan.in_ring ? ring : const_cast<uint4*>(behind_x));
  for (int first = 0; first < place.groups; first += plan.round_groups) {
    const int groups = min(plan.round_groups, place.groups - first);
    AddGroups<Sums>(call, place, groups, weights, x, [&](int group, const Sums& own) {
      // The warp's own stages, into which no copy is on its way any more.
      if (plan.in_ring) weights.End();
      const int number = place.matrix * plan.round_groups + group;
      own.Store(sums + (number * plan.split + place.share) * kShape.group_sums());
    });
    if (plan.split > 1) {
      __syncthreads();
      JoinWarps<Sums>(place.kMatrices * plan.round_groups, plan.split, sums);
    }
    ptx::WaitForCluster();
    WriteSums<X, kGated, Sums>(call, place.first_group + first, groups, sums);
    // Others may still read this block's sums.
    if (plan.parts > 1 || first + groups < place.groups) ptx::WaitForCluster();
  }
}

template <typename X, bool kGated, class Sums>
__global__ void __launch_bounds__(Sums::kShape.threads(), Sums::kShape.rows > 32 ? 1 : 2)
    SmallBf16Kernel(const __grid_constant__ SmallCall call) {
  extern __shared__ uint4 small_shared[];
  constexpr SmallShape kShape = Sums::kShape;
  if (!call.constant_weights) ptx::WaitForKernelBefore();
  const SmallPlace<Sums, kGated> place(call);
  WeightRing<Sums> weights(call, place, small_shared);
  ptx::LetNextKernelBegin();
  if (call.constant_weights) ptx::WaitForKernelBefore();
  uint4* x = small_shared + kShape.ring_pieces();
  RoundRows<X, Sums>(call, place, x);
  __syncthreads();
  if constexpr (kShape.direct && !kGated) {
    if (call.plan.direct) {
      AddGroups<Sums>(call, place, place.groups, weights, x, [&](int group, const Sums& sums) {
        const int64_t column0 = int64_t{place.first_group + group} * kShape.columns;
        sums.ForEach([&](int row, int column, float sum) {
          if (row >= call.m || column0 + column >= call.n) return;
          call.epilogue.Write<X>(row, column0 + column, sum,
                                 SmallStack::Product() * call.m * call.n);
        });
      });
      return;
    }
  }
  AddAndJoin<X, kGated, Sums>(call, place, weights, small_shared, x);
}

template <typename X, bool kGated, class Sums>
Error LaunchSmall(const ProductParams& params, Stream stream) {
  const SmallPlan plan = PlanSmall(params, Sums::kShape);
  const auto kernel = SmallBf16Kernel<X, kGated, Sums>;
  // Always as much, so that threads that launch at the same time do not take it from each other.
  const auto attribute = cudaFuncAttributeMaxDynamicSharedMemorySize;
  if (const Error error = cudaFuncSetAttribute(kernel, attribute, plan.most_shared); error != 0) {
    return error;
  }
  const LaunchShape shape{.grid = StackOf(params).Grid(plan.clusters * plan.parts),
                          .block = static_cast<unsigned>(Sums::kShape.threads()),
                          .shared_bytes = static_cast<size_t>(plan.shared_bytes)};
  return LaunchClusters(kernel, shape, plan.parts, stream, SmallCall::Of(params, plan));
}

}  // namespace pagefuse::cuda
