// SPDX-License-Identifier: Apache-2.0
// Partial results of a decode kernel joined to the outputs: a CTA a row, of as many warps as let all rows be joined at once.
#include <algorithm>

#include "pagefuse/ops/kernels/cuda/attention_rows.h"
#include "pagefuse/ops/kernels/cuda/launch_kernel.h"
#include "pagefuse/ops/kernels/cuda/page_schedule.h"
#include "pagefuse/ops/kernels/cuda/paged_decode.h"
#include "pagefuse/ops/kernels/cuda/paged_decode_ptx.h"

namespace pagefuse::cuda {
namespace {

// The sequence with a token.
__device__ int SequenceOf(const AttentionBatch& batch, int token) {
  if (batch.num_tokens == batch.num_sequences) return token;  // none has more than one
  int low = 0, high = static_cast<int>(batch.num_sequences);
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (batch.first_token(middle) <= token) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

// The partial results of a row: of `ctas` CTAs, all with pages of its sequence, so many of its head in each.
struct RowParts {
  int owner, first_cta, ctas;
  int head, group_head;  // among the CTA's KV heads, and in the group
  int of_cta, group;

  __device__ int count() const { return ctas * of_cta; }
  __device__ int Number(const DecodePlan& plan, const PageSchedule& schedule, int i) const {
    const int part = i % of_cta * plan.heads + head;
    const int slot = schedule.SlotOf(owner, first_cta + i / of_cta);
    return (slot * plan.parts() + part) * group + group_head;
  }
};

__device__ RowParts PartsOf(const PagedAttention& p, const DecodePlan& plan,
                            const PageSchedule& schedule, int row) {
  // Divisions of 32 bits are far cheaper.
  const auto heads = static_cast<int>(p.batch.num_heads);
  const int group = heads / static_cast<int>(p.batch.num_kv_heads);
  const int token = row / heads, head = row % heads;
  const int b = SequenceOf(p.batch, token), kv_head = head / group;
  RowParts parts = {};
  parts.owner = kv_head / plan.heads * schedule.sequences + b;
  parts.head = kv_head % plan.heads;
  parts.group_head = head % group;
  parts.of_cta = plan.parts_of_head();
  parts.group = group;
  const int begin = schedule.FirstEntryOf(parts.owner), end = schedule.EndOf(parts.owner);
  if (begin == end) return parts;
  parts.first_cta = schedule.CtaOf(begin);
  parts.ctas = schedule.CtaOf(end - 1) - parts.first_cta + 1;
  return parts;
}

constexpr int kJoinWarpsAtOnce = 48;  // of a multiprocessor, by the registers that they need

// Rows of kFours float4 a lane, by kWarps warps.
template <int kFours, int kWarps>
__device__ void JoinParts(const PagedAttention& p, const DecodePlan& plan,
                          const PageSchedule& schedule, const RowParts& parts) {
  constexpr float kLn2 = 0.6931471805599453f;
  extern __shared__ float4 join_shared[];
  __shared__ float warp_sums[kWarps];
  const auto n = static_cast<int>(p.batch.head_size);
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int count = parts.count();
  auto* shared = reinterpret_cast<int4*>(join_shared);  // number, reference, sum
  float* values = reinterpret_cast<float*>(shared + plan.ctas * plan.parts_of_head());
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kWarps * kWarp) {
    const int number = parts.Number(plan, schedule, i);
    const float2 sums = reinterpret_cast<const float2*>(p.partial_sums)[number];
    shared[i] = {number, __float_as_int(sums.x), __float_as_int(sums.y), 0};
  }
  __syncthreads();
  float max = -INFINITY;
  for (int i = LaneId(); i < count; i += kWarp) max = fmaxf(max, __int_as_float(shared[i].y));
  max = MaxOfLanes(max);
  float4 total[kFours] = {};
  float sum = 0;
  // Some parts at a time, without branches: their values are on their way at once.
  constexpr int kAtOnce = 4 / kFours;
#pragma unroll 1
  for (int first = warp; first < count; first += kAtOnce * kWarps) {
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int i = first + k * kWarps;
      const bool there = i < count;
      const int4 part = there ? shared[i] : int4{};
      const float weight = there ? ptx::Exp2(__int_as_float(part.y) - max) : 0;
      sum += __int_as_float(part.z) * weight;
      const auto* from =
          reinterpret_cast<const float4*>(p.partial_values + static_cast<int64_t>(part.x) * n);
#pragma unroll
      for (int c = 0; c < kFours; ++c) {
        const int at = LaneId() + kWarp * c;
        const float4 v = there && 4 * at < n ? from[at] : float4{};
        total[c].x += v.x * weight, total[c].y += v.y * weight;
        total[c].z += v.z * weight, total[c].w += v.w * weight;
      }
    }
  }
#pragma unroll
  for (int c = 0; c < kFours; ++c) {
    const int at = LaneId() + kWarp * c;
    if (4 * at < n) reinterpret_cast<float4*>(values + warp * n)[at] = total[c];
  }
  if (LaneId() == 0) warp_sums[warp] = sum;
  __syncthreads();
#pragma unroll 1
  for (int d = static_cast<int>(threadIdx.x); d < n; d += kWarps * kWarp) {
    float joined = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) joined += values[w * n + d];
    values[d] = joined;  // read by this thread alone
  }
  __syncthreads();
  if (warp != 0) return;
  RowSums all = {max * kLn2, 0};
  for (int w = 0; w < kWarps; ++w) all.sum += warp_sums[w];
  FinishRow(p, static_cast<int>(blockIdx.x), all, values);
}

template <int kFours, int kWarps>
__global__ void __launch_bounds__(kWarps* kWarp, kJoinWarpsAtOnce / kWarps)
    DecodeJoinKernel(const __grid_constant__ PagedAttention p,
                     const __grid_constant__ DecodePlan plan, const int32_t* starts) {
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  const auto schedule = PageSchedule::Of(starts, plan.listed, plan.chunks, plan.ctas, plan.phases);
  const RowParts parts = PartsOf(p, plan, schedule, static_cast<int>(blockIdx.x));
  JoinParts<kFours, kWarps>(p, plan, schedule, parts);
}

template <int kWarps>
Error LaunchJoinOf(const PagedAttention& p, const DecodePlan& plan, const int32_t* starts,
                   Stream stream) {
  const auto rows = static_cast<unsigned>(p.batch.num_tokens * p.batch.num_heads);
  const int bytes = DecodeJoinBytes(static_cast<int>(p.batch.head_size),
                                    plan.ctas * plan.parts_of_head(), kWarps);
  const LaunchShape shape = {dim3(rows), dim3(kWarps * kWarp), static_cast<size_t>(bytes)};
  const auto kernel =
      p.batch.head_size <= 128 ? DecodeJoinKernel<1, kWarps> : DecodeJoinKernel<2, kWarps>;
  return Launch(kernel, shape, stream, p, plan, starts);
}

}  // namespace

// Waves of CTAs would wait one for the other where a row's few parts are read in the time of one.
Error LaunchDecodeJoin(const PagedAttention& p, const DecodePlan& plan, const int32_t* starts,
                       Stream stream) {
  const int64_t warps = int64_t{Multiprocessors()} * kJoinWarpsAtOnce /
                        std::max<int64_t>(p.batch.num_tokens * p.batch.num_heads, 1);
  if (warps >= kJoinWarps) return LaunchJoinOf<kJoinWarps>(p, plan, starts, stream);
  if (warps >= 4) return LaunchJoinOf<4>(p, plan, starts, stream);
  return LaunchJoinOf<2>(p, plan, starts, stream);
}

}  // namespace pagefuse::cuda
