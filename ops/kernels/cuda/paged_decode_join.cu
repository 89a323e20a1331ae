// SPDX-License-Identifier: Apache-2.0
// Partial results of a decode kernel joined to the outputs: a CTA a row.
#include "pagefuse/ops/kernels/cuda/attention_rows.h"
#include "pagefuse/ops/kernels/cuda/launch_kernel.h"
#include "pagefuse/ops/kernels/cuda/page_schedule.h"
#include "pagefuse/ops/kernels/cuda/paged_decode.h"
#include "pagefuse/ops/kernels/cuda/ptx.h"

namespace pagefuse::cuda {
namespace {

// The sequence with a token.
__device__ int64_t SequenceOf(const AttentionBatch& batch, int64_t token) {
  if (batch.num_tokens == batch.num_sequences) return token;  // none has more than one
  int64_t low = 0, high = batch.num_sequences;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    if (batch.first_token(middle) <= token) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

// The partial results of a row: of `ctas` CTAs, some without pages, and of the warps of its head in each.
struct RowParts {
  int owner, first_cta, ctas;
  int head, group_head;  // among the CTA's KV heads, and in the group
  int phases;

  __device__ int count() const { return ctas * phases; }
  // The number of part i, or -1.
  __device__ int64_t Number(const PagedAttention& p, const DecodePlan& plan,
                            const PageSchedule& schedule, int i) const {
    const int cta = first_cta + i / phases;
    if (schedule.First(cta) == schedule.First(cta + 1)) return -1;
    const int warp = i % phases * plan.heads + head;
    const int64_t slot = schedule.SlotOf(owner, cta);
    return (slot * plan.warps + warp) * p.batch.group() + group_head;
  }
};

__device__ RowParts PartsOf(const PagedAttention& p, const DecodePlan& plan,
                            const PageSchedule& schedule, int64_t row) {
  const int64_t b = SequenceOf(p.batch, row / p.batch.num_heads);
  const auto head = static_cast<int>(row % p.batch.num_heads);
  const int group = static_cast<int>(p.batch.group());
  const int kv_head = head / group;
  RowParts parts = {};
  parts.owner = kv_head / plan.heads * schedule.sequences + static_cast<int>(b);
  parts.head = kv_head % plan.heads;
  parts.group_head = head % group;
  parts.phases = plan.phases;
  const int begin = schedule.FirstEntryOf(parts.owner), end = schedule.EndOf(parts.owner);
  if (begin == end) return parts;
  parts.first_cta = schedule.CtaOf(begin);
  parts.ctas = schedule.CtaOf(end - 1) - parts.first_cta + 1;
  return parts;
}

constexpr int kJoinWarps = 16;
constexpr int kJoinThreads = kJoinWarps * kWarp;
// Shared memory: numbers and sums of parts, then values of each warp.
constexpr size_t JoinBytes(int64_t head_size, int most_parts) {
  return static_cast<size_t>(most_parts) * 16 + kJoinWarps * static_cast<size_t>(head_size) * 4;
}

// Rows of kFours float4 a lane.
template <int kFours>
__device__ void JoinParts(const PagedAttention& p, const DecodePlan& plan,
                          const PageSchedule& schedule, int64_t row, const RowParts& parts) {
  constexpr float kLn2 = 0.6931471805599453f;
  extern __shared__ float4 join_shared[];
  __shared__ float warp_sums[kJoinWarps];
  const auto n = static_cast<int>(p.batch.head_size);
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int count = parts.count();
  auto* shared = reinterpret_cast<int4*>(join_shared);  // number or -1, reference, sum
  float* values = reinterpret_cast<float*>(shared + plan.ctas * plan.phases);
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kJoinThreads) {
    const int64_t number = parts.Number(p, plan, schedule, i);
    float2 sums = {-INFINITY, 0};
    if (number >= 0) sums = *reinterpret_cast<const float2*>(p.partial_sums + 2 * number);
    shared[i] = {static_cast<int>(number), __float_as_int(sums.x), __float_as_int(sums.y), 0};
  }
  __syncthreads();
  float max = -INFINITY;
  for (int i = LaneId(); i < count; i += kWarp) max = fmaxf(max, __int_as_float(shared[i].y));
  max = MaxOfLanes(max);
  float4 total[kFours] = {};
  float sum = 0;
#pragma unroll 8
  for (int i = warp; i < count; i += kJoinWarps) {
    const int4 part = shared[i];
    if (part.x < 0) continue;
    const float weight = exp2f(__int_as_float(part.y) - max);
    sum += __int_as_float(part.z) * weight;
    const auto* from =
        reinterpret_cast<const float4*>(p.partial_values + static_cast<int64_t>(part.x) * n);
#pragma unroll
    for (int c = 0; c < kFours; ++c) {
      const int at = LaneId() + kWarp * c;
      if (kFours == 1 && 4 * at >= n) continue;
      const float4 v = from[at];
      total[c].x += v.x * weight, total[c].y += v.y * weight;
      total[c].z += v.z * weight, total[c].w += v.w * weight;
    }
  }
#pragma unroll
  for (int c = 0; c < kFours; ++c) {
    const int at = LaneId() + kWarp * c;
    if (4 * at < n) reinterpret_cast<float4*>(values + warp * n)[at] = total[c];
  }
  if (LaneId() == 0) warp_sums[warp] = sum;
  __syncthreads();
  float joined = 0;
  const int d = static_cast<int>(threadIdx.x);
  if (d < n) {
#pragma unroll
    for (int w = 0; w < kJoinWarps; ++w) joined += values[w * n + d];
    values[d] = joined;  // read by this thread alone
  }
  __syncthreads();
  if (warp != 0) return;
  RowSums all = {max * kLn2, 0};
  for (int w = 0; w < kJoinWarps; ++w) all.sum += warp_sums[w];
  FinishRow(p, row, all, values);
}

template <int kFours>
__global__ void __launch_bounds__(kJoinThreads)
    DecodeJoinKernel(const __grid_constant__ PagedAttention p,
                     const __grid_constant__ DecodePlan plan, const int32_t* starts) {
  ptx::WaitForKernelBefore();
  ptx::LetNextKernelBegin();
  const PageSchedule schedule = {starts, static_cast<int>(p.batch.num_sequences), plan.chunks,
                                 plan.ctas};
  const int64_t row = blockIdx.x;
  const RowParts parts = PartsOf(p, plan, schedule, row);
  JoinParts<kFours>(p, plan, schedule, row, parts);
}

}  // namespace

Error LaunchDecodeJoin(const PagedAttention& p, const DecodePlan& plan, const int32_t* starts,
                       Stream stream) {
  const auto rows = static_cast<unsigned>(p.batch.num_tokens * p.batch.num_heads);
  const LaunchShape shape = {dim3(rows), dim3(kJoinThreads),
                             JoinBytes(p.batch.head_size, plan.ctas * plan.phases)};
  const auto kernel = p.batch.head_size <= 128 ? DecodeJoinKernel<1> : DecodeJoinKernel<2>;
  return Launch(kernel, shape, stream, p, plan, starts);
}

}  // namespace pagefuse::cuda
