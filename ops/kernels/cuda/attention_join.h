// SPDX-License-Identifier: Apache-2.0
// Partial results of a row joined to its outputs: a CTA a row. Device code: for .cu files.
#pragma once

#include "pagefuse/ops/kernels/cuda/attention_rows.h"

namespace pagefuse::cuda::join {

inline constexpr int kWarps = 8;
inline constexpr int kThreads = kWarps * kWarp;

// A partial result with some keys.
struct Part {
  int64_t number;  // among the partial results
  float max, sum;
};
constexpr size_t SharedBytes(int64_t head_size, int most_parts) {
  return kWarps * static_cast<size_t>(head_size + 1) * sizeof(float) + sizeof(int) +
         static_cast<size_t>(most_parts) * sizeof(Part);
}

struct SharedJoin {
  Part* parts;    // [most_parts]
  float* values;  // [kWarps, head_size]
  float* sums;    // [kWarps]
  int* kept;      // parts with keys
};
__device__ inline SharedJoin PlaceShared(int head_size, int most_parts) {
  extern __shared__ float4 join_shared[];
  SharedJoin shared;
  shared.parts = reinterpret_cast<Part*>(join_shared);
  shared.values = reinterpret_cast<float*>(shared.parts + most_parts);
  shared.sums = shared.values + kWarps * head_size;
  shared.kept = reinterpret_cast<int*>(shared.sums + kWarps);
  return shared;
}

// Moves those with keys to the front, in their order; returns how many there are. For one warp.
__device__ inline int KeepParts(Part* parts, int count) {
  int kept = 0;
  for (int first = 0; first < count; first += kWarp) {
    const int i = first + LaneId();
    Part part = {0, 0, 0};
    if (i < count) part = parts[i];
    const unsigned keep = __ballot_sync(kAllLanes, part.sum != 0);
    const unsigned before = keep & ((1u << LaneId()) - 1);
    if (part.sum != 0) parts[kept + __popc(before)] = part;
    kept += __popc(keep);
    __syncwarp();
  }
  return kept;
}

// This warp's share of the weighted sums, to its row of `values`; returns that of the weights.
__device__ inline float SumParts(const PagedAttention& p, const SharedJoin& shared, int count,
                                 float max, float unit) {
  constexpr int kFours = kLongestAttentionHead / (4 * kWarp);
  const int n = static_cast<int>(p.batch.head_size);
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  float* o = shared.values + warp * n;
  float sum = 0;
  if (n % 4 != 0) {
    for (int d = LaneId(); d < n; d += kWarp) o[d] = 0;
    for (int i = warp; i < count; i += kWarps) {
      const Part part = shared.parts[i];
      const float weight = exp2f((part.max - max) * unit);
      sum += part.sum * weight;
      const float* values = p.partial_values + part.number * n;
      for (int d = LaneId(); d < n; d += kWarp) o[d] += values[d] * weight;
    }
    return sum;
  }
  float4 total[kFours];
#pragma unroll
  for (int c = 0; c < kFours; ++c) total[c] = make_float4(0, 0, 0, 0);
#pragma unroll 4
  for (int i = warp; i < count; i += kWarps) {
    const Part part = shared.parts[i];
    const float weight = exp2f((part.max - max) * unit);
    sum += part.sum * weight;
    const auto* values = reinterpret_cast<const float4*>(p.partial_values + part.number * n);
#pragma unroll
    for (int c = 0; c < kFours; ++c) {
      const int at = LaneId() + kWarp * c;
      if (4 * at >= n) continue;
      const float4 v = values[at];
      total[c].x += v.x * weight, total[c].y += v.y * weight;
      total[c].z += v.z * weight, total[c].w += v.w * weight;
    }
  }
#pragma unroll
  for (int c = 0; c < kFours; ++c) {
    const float at[4] = {total[c].x, total[c].y, total[c].z, total[c].w};
    const int first = 4 * (LaneId() + kWarp * c);
    for (int k = 0; k < 4 && first < n; ++k) o[first + k] = at[k];
  }
  return sum;
}

// Joins the `count` parts that part_of(i) tells. Weights are exp2(score * unit).
template <class PartOf>
__device__ void JoinRow(const PagedAttention& p, int64_t row, int count, float unit,
                        const SharedJoin& shared, PartOf part_of) {
  constexpr float kLn2 = 0.6931471805599453f;
  const int n = static_cast<int>(p.batch.head_size);
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) {
    shared.parts[i] = part_of(i);
  }
  __syncthreads();
  if (warp == 0) {
    const int parts = KeepParts(shared.parts, count);
    if (LaneId() == 0) *shared.kept = parts;
  }
  __syncthreads();
  const int kept = *shared.kept;
  float max = -INFINITY;
  for (int i = LaneId(); i < kept; i += kWarp) max = fmaxf(max, shared.parts[i].max);
  max = MaxOfLanes(max);
  const float sum = SumParts(p, shared, kept, max, unit);
  if (LaneId() == 0) shared.sums[warp] = sum;
  __syncthreads();
  if (warp != 0) return;
  RowSums all = {max * unit * kLn2, 0};
  for (int w = 0; w < kWarps; ++w) all.sum += shared.sums[w];
  for (int d = LaneId(); d < n; d += kWarp) {
    float total = 0;
    for (int w = 0; w < kWarps; ++w) total += shared.values[w * n + d];
    shared.values[d] = total;
  }
  __syncwarp();
  FinishRow(p, row, all, shared.values);
}

}  // namespace pagefuse::cuda::join
