// SPDX-License-Identifier: Apache-2.0
// Results of a decode kernel's warps joined in shared memory: those of a head in its CTA, then those of the CTAs of a cluster to outputs. Device
// code: for .cu files.
#pragma once

#include "pagefuse/ops/kernels/cuda/attention_rows.h"
#include "pagefuse/ops/kernels/cuda/paged_decode_softmax.h"

namespace pagefuse::cuda {

// In shared memory; DecodeResultBytes counts them. What the CTAs of a cluster send for a row that this one joins lies together.
struct CtaResults {
  float* values;           // [warps, group, head_size]
  float* received_values;  // [received_rows, cluster, head_size]
  float2* sums;            // [warps, group]: reference and sum of each warp
  float2* received_sums;   // [received_rows, cluster]

  __device__ static CtaResults Of(uint8_t* at, int warps, int head_size, const DecodePlan& plan) {
    const int rows = warps * plan.group;
    CtaResults results;
    results.values = reinterpret_cast<float*>(at);
    results.received_values = results.values + rows * head_size;
    results.sums = reinterpret_cast<float2*>(results.received_values +
                                             plan.received_rows * plan.cluster * head_size);
    results.received_sums = results.sums + rows;
    return results;
  }
  __device__ PartialResult OfWarp(int warp, int group, int head_size) const {
    return {reinterpret_cast<float*>(sums + warp * group), values + warp * group * head_size};
  }
};

// Also without a weight: what is no number stays so.
__device__ inline void AddWeighed(float4& total, float4 v, float weight) {
  total.x += v.x * weight, total.y += v.y * weight;
  total.z += v.z * weight, total.w += v.w * weight;
}

// Rows of all heads of the CTA, each of `phases` warps: `leave(row, c, four, sums)` gets four values from channel 4 c on. By the warps that
// compute, when all have left theirs.
template <int kWarps, int kHeadSize, class Leave>
__device__ void JoinWarps(const CtaResults& results, int rows, int phases, Leave leave) {
  constexpr unsigned kFours = kHeadSize / 4;
#pragma unroll 1
  for (auto i = static_cast<unsigned>(threadIdx.x); i < rows * kFours; i += kWarps * kWarp) {
    const auto row = static_cast<int>(i / kFours);
    float2 sums = {kNoReference, 0};
#pragma unroll 4
    for (int k = 0; k < phases; ++k) sums.x = fmaxf(sums.x, results.sums[k * rows + row].x);
    float4 total = {};
    const auto* values = reinterpret_cast<const float4*>(results.values) + i;
#pragma unroll 4
    for (int k = 0; k < phases; ++k) {
      const float2 part = results.sums[k * rows + row];
      const float weight = ptx::Exp2(part.x - sums.x);
      sums.y += part.y * weight;
      AddWeighed(total, values[k * rows * static_cast<int>(kFours)], weight);
    }
    leave(row, static_cast<int>(i % kFours), total, sums);
  }
}

// The warps that compute, one for another.
template <int kWarps>
__device__ void SyncWarps() {
  ptx::SyncThreads(1, kWarps * kWarp);
}

// A warp's result of the piece that begins at page `begin` of the CTA: `store` puts its values to where it is told. Results for a cluster are not
// joined yet.
template <int kWarps, int kHeadSize, class Store>
__device__ void LeaveResult(const PagedAttention& p, const DecodePlan& plan,
                            const CtaResults& results, const Piece& piece, int begin,
                            const DecodeSoftmax& softmax, Store store) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const bool joins = plan.result_bytes > 0;
  if (joins && begin > 0) SyncWarps<kWarps>();  // the piece before is joined
  const PartialResult mine =
      joins ? results.OfWarp(warp, plan.group, kHeadSize) : PartialOf(p, plan, piece.slot, warp);
  StoreSums(mine, softmax, plan.group);
  store(mine.values);
  if (!joins) return;
  SyncWarps<kWarps>();
  if (plan.cluster > 0) return;
  const PartialResult to = PartialOf(p, plan, piece.slot, 0);
  JoinWarps<kWarps, kHeadSize>(results, plan.heads * plan.group, plan.phases,
                               [&](int row, int c, float4 four, float2 sums) {
                                 reinterpret_cast<float4*>(to.values + row * kHeadSize)[c] = four;
                                 if (c == 0) reinterpret_cast<float2*>(to.sums)[row] = sums;
                               });
}

// The CTA's barrier for what it receives: of each of its rows a part of every CTA. For all threads; barriers of stages are made.
template <int kHeadSize>
__device__ void MeetCluster(const DecodePlan& plan, uint32_t received) {
  if (threadIdx.x == 0) {
    const int left = plan.heads * plan.group - static_cast<int>(blockIdx.x);
    const int rows = (left + plan.cluster - 1) >> plan.cluster_log2;
    ptx::InitBarrier(received, 1);
    ptx::FenceBarriers();
    ptx::ArriveAndExpect(received, max(rows, 0) * plan.cluster * (4 * kHeadSize + 8));
  }
  __syncwarp();
  ptx::ArriveAtCluster();
}

// Sends what the CTA has of each row to the one that joins it.
template <int kWarps, int kHeadSize>
__device__ void SendRows(const DecodePlan& plan, const CtaPages& pages, const CtaResults& results,
                         uint32_t received) {
  const uint32_t all_values = ptx::SharedAddress(results.received_values);
  const uint32_t all_sums = ptx::SharedAddress(results.received_sums);
  JoinWarps<kWarps, kHeadSize>(results, plan.heads * plan.group, pages.count > 0 ? plan.phases : 0,
                               [&](int row, int c, float4 four, float2 sums) {
                                 const int block = row & (plan.cluster - 1);
                                 const int part = row - block + pages.cta;
                                 const uint32_t barrier = ptx::AddressOfBlock(received, block);
                                 const uint32_t values = all_values + 4 * kHeadSize * part + 16 * c;
                                 ptx::SendFour(ptx::AddressOfBlock(values, block), four, barrier);
                                 if (c == 0)
                                   ptx::SendPair(ptx::AddressOfBlock(all_sums + 8 * part, block),
                                                 sums, barrier);
                               });
}

template <int kHeadSize>
struct ClusterRow {
  static constexpr int kAll = kHeadSize / 4;  // float4
  static constexpr int kFours = (kAll + kWarp - 1) / kWarp;
  float4 o[kFours] = {};  // values of channels 4 (lane + 32 i) on, weighed
  float max, sum;

  __device__ static bool Has(int four) { return kAll % kWarp == 0 || four < kAll; }

  // What was received for row `own` of this CTA's.
  __device__ void Join(const CtaResults& results, int cluster, int own) {
    const float2* sums = results.received_sums + own * cluster;
    const auto* values =
        reinterpret_cast<const float4*>(results.received_values) + own * cluster * kAll;
    const float2 part = LaneId() < cluster ? sums[LaneId()] : float2{kNoReference, 0};
    max = MaxOfLanes(part.x);
    const float weight = ptx::Exp2(part.x - max);
    sum = SumOfLanes(part.y * weight);
#pragma unroll 4
    for (int k = 0; k < cluster; ++k) {
      const float of_part = __shfl_sync(kAllLanes, weight, k);
#pragma unroll
      for (int i = 0; i < kFours; ++i) {
        const int four = LaneId() + kWarp * i;
        if (Has(four)) AddWeighed(o[i], values[k * kAll + four], of_part);
      }
    }
  }

  // FinishRow of attention_rows.h for rows in registers, without what no decode kernel takes.
  __device__ void Finish(const PagedAttention& p, int first_row, int head) {
    constexpr float kLn2 = 0.6931471805599453f;
    float reference = max * kLn2, factor = 1;
    if (p.head_sink != nullptr) {
      const float sink = SinkOf(p, head);
      const float larger = fmaxf(reference, sink);
      factor = expf(reference - larger);
      sum = sum * factor + expf(sink - larger);
      reference = larger;
    }
    if (p.lse != nullptr && LaneId() == 0) {
      const auto token =
          static_cast<uint32_t>(first_row) / static_cast<uint32_t>(p.batch.num_heads);
      p.lse[head * p.batch.num_tokens + token] = sum == 0 ? -INFINITY : reference + logf(sum);
    }
    const bool empty = sum == 0;
    factor /= sum;
    if (p.output_scale != nullptr) factor *= __fdiv_rn(1.0f, *p.output_scale);
#pragma unroll
    for (int i = 0; i < kFours; ++i) {
      const int four = LaneId() + kWarp * i;
      if (!Has(four)) continue;
      const float4 result = ResultsOf(p.batch.rules, empty ? float4{} : Times(o[i], factor));
      Store(p, int64_t{first_row + head} * kAll + four, result);
    }
  }

 private:
  __device__ static float4 Times(float4 v, float factor) {
    return {v.x * factor, v.y * factor, v.z * factor, v.w * factor};
  }
  __device__ static float4 ResultsOf(const AttentionRules& rules, float4 v) {
    return {rules.ResultOf(v.x), rules.ResultOf(v.y), rules.ResultOf(v.z), rules.ResultOf(v.w)};
  }
  __device__ static void Store(const PagedAttention& p, int64_t four, float4 v) {
    switch (p.output_type) {
      case DataType::kFloat:
        static_cast<float4*>(p.output)[four] = v;
        break;
      case DataType::kFloat16:
        static_cast<uint2*>(p.output)[four] = {PackHalves(v.x, v.y), PackHalves(v.z, v.w)};
        break;
      case DataType::kBfloat16:
        static_cast<uint2*>(p.output)[four] = {PackBfloats(v.x, v.y), PackBfloats(v.z, v.w)};
        break;
      default:
        static_cast<Four<Float8E4M3FN>*>(p.output)[four] = {
            {Float8E4M3FN(v.x), Float8E4M3FN(v.y), Float8E4M3FN(v.z), Float8E4M3FN(v.w)}};
    }
  }
};

// What the CTAs of a cluster have, to outputs: each joins some of the rows, a row a warp. By the warps that compute.
template <int kWarps, int kHeadSize>
__device__ void JoinCluster(const PagedAttention& p, const DecodePlan& plan, const CtaPages& pages,
                            const CtaResults& results, uint32_t received) {
  ptx::AwaitCluster();  // all have made their barriers
  SendRows<kWarps, kHeadSize>(plan, pages, results, received);
  const int rows = plan.heads * plan.group;
  const int32_t* starts = p.batch.query_start_loc;
  const bool has_token = starts == nullptr || starts[pages.sequence] < starts[pages.sequence + 1];
  const int first_row = FirstRow(p.batch, pages.sequence);
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
#pragma unroll 1
  for (int own = warp; own * plan.cluster + pages.cta < rows; own += kWarps) {
    ptx::AwaitSent(received, 0);  // without a token too: no CTA ends before all has come
    if (!has_token) break;
    ClusterRow<kHeadSize> row;
    row.Join(results, plan.cluster, own);
    row.Finish(p, first_row, pages.chunk * rows + own * plan.cluster + pages.cta);
  }
}

}  // namespace pagefuse::cuda
