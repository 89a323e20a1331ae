// SPDX-License-Identifier: Apache-2.0
// From what CTAs found of their heads to outputs: joined through shared memory where they are a cluster. Device code: for .cu files.
#pragma once

#include "pagefuse/ops/kernels/cuda/cluster.h"
#include "pagefuse/ops/kernels/cuda/sparse_mla_tile_sums.h"

namespace pagefuse::cuda::latent {

// What a CTA found, in its shared memory when nobody reads tiles any more.
template <int kHeads>
struct TileResults {
  static constexpr int kStride =
      kLatentValues + 8;  // floats: neighbours g of C lie in different banks
  static constexpr int kBytes = kHeads * (4 * kStride + 8);

  float* values;  // [heads, kStride]
  float2* sums;   // [heads]: largest score, sum of weights

  __device__ static TileResults At(uint8_t* base) {
    auto* values = reinterpret_cast<float*>(base);
    return {values, reinterpret_cast<float2*>(values + kHeads * kStride)};
  }
};

// Which part of a call a CTA has.
struct TileShare {
  int token = 0;
  int64_t head = 0;  // its first one
  int heads = 0;
  int rank = 0, cluster = 1;  // of CTAs with the same heads
  int partial = 0;            // which result of several this cluster's is
};

// The CTAs of a cluster are neighbours. Groups of heads read the same rows: they follow.
template <int kHeads>
__device__ TileShare ShareOf(const SparseMla& call, const LatentTiles& tiles) {
  const unsigned block = ptx::BlockIndex();
  const auto cluster = static_cast<unsigned>(tiles.cluster);
  const auto groups = static_cast<unsigned>(tiles.head_groups);
  const auto partials = static_cast<unsigned>(tiles.partials());
  const unsigned rest = block / cluster;
  TileShare share;
  share.token = static_cast<int>(rest / groups / partials);
  share.head = int64_t{rest % groups} * kHeads;
  share.heads = static_cast<int>(min(int64_t{kHeads}, call.heads - share.head));
  share.rank = static_cast<int>(block % cluster);
  share.cluster = tiles.cluster;
  share.partial = static_cast<int>(rest / groups % partials);
  return share;
}

// Four neighbouring channels of an output.
__device__ inline void StoreFour(const SinkResults& results, int64_t at, float4 x) {
  switch (results.type) {
    case DataType::kFloat16:
      *reinterpret_cast<uint2*>(static_cast<Half*>(results.out) + at) =
          make_uint2(PackHalves(x.x, x.y), PackHalves(x.z, x.w));
      return;
    case DataType::kBfloat16:
      *reinterpret_cast<uint2*>(static_cast<Bfloat*>(results.out) + at) =
          make_uint2(PackBfloats(x.x, x.y), PackBfloats(x.z, x.w));
      return;
    default:
      *reinterpret_cast<float4*>(static_cast<float*>(results.out) + at) = x;
  }
}

// Channels d to d + 3 of one of the CTA's heads.
__device__ inline void StoreJoined(const SinkResults& results, const TileShare& share, int head,
                                   int d, RowSums sums, float4 x) {
  const int64_t row = share.token * results.heads + share.head + head;
  const bool writes = d == 0;
  if (results.splits > 1) {
    const int64_t partial = PartialOf(results, row, share.partial);
    if (writes) StoreSums(results, partial, sums);
    if (HasNoKey(sums)) return;
    *reinterpret_cast<float4*>(results.partial_values + partial * kLatentValues + d) = x;
    return;
  }
  const float factor = FinishSums(results, row, share.head + head, sums, writes);
  if (sums.sum == 0) {
    x = {};
  } else {
    x.x *= factor, x.y *= factor, x.z *= factor, x.w *= factor;
  }
  StoreFour(results, row * kLatentValues + d, x);
}

// Also without a weight: what is no number stays so.
__device__ inline void AddWeighed(float4& total, float4 v, float weight) {
  total.x += v.x * weight, total.y += v.y * weight;
  total.z += v.z * weight, total.w += v.w * weight;
}

// What all CTAs of the cluster left, to outputs: each has some of the heads. For all threads, when results are written.
template <int kHeads, int kThreads>
__device__ void StoreResults(const SinkResults& results, const TileShare& share,
                             const TileResults<kHeads>& found) {
  constexpr int kRowThreads = kLatentValues / 4;
  const auto thread = static_cast<int>(threadIdx.x);
  const int d = thread % kRowThreads * 4, step = share.cluster * (kThreads / kRowThreads);
  int head = share.rank + share.cluster * (thread / kRowThreads);
  if (head >= share.heads) ptx::ArriveAtClusterEnd();
#pragma unroll 1
  for (; head < share.heads; head += step) {
    float4 values[kMostLatentCluster];
#pragma unroll
    for (int block = 0; block < kMostLatentCluster; ++block) {
      values[block] = {};
      if (block < share.cluster) {
        values[block] = ptx::FourOfBlock(found.values + head * found.kStride + d, block);
      }
    }
    float2 part = {-INFINITY, 0};
    if (LaneId() < share.cluster) part = ptx::PairOfBlock(found.sums + head, LaneId());
    RowSums sums;
    sums.max = MaxOfLanes(part.x);
    const float weight = part.y == 0 ? 0 : exp2f(part.x - sums.max);
    sums.sum = SumOfLanes(part.y * weight);
    float4 total = {};
#pragma unroll
    for (int block = 0; block < kMostLatentCluster; ++block) {
      AddWeighed(total, values[block], __shfl_sync(kAllLanes, weight, block));
    }
    if (head + step >= share.heads) ptx::ArriveAtClusterEnd();  // the last of what others have
    StoreJoined(results, share, head, d, sums, total);
  }
  ptx::AwaitClusterEnd();
}

}  // namespace pagefuse::cuda::latent
