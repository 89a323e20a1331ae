// SPDX-License-Identifier: Apache-2.0
// Partial results of a decode kernel joined to the outputs: a CTA a row.
#include "pagefuse/ops/kernels/cuda/attention_join.h"
#include "pagefuse/ops/kernels/cuda/launch_kernel.h"
#include "pagefuse/ops/kernels/cuda/page_schedule.h"
#include "pagefuse/ops/kernels/cuda/paged_decode.h"
#include "pagefuse/ops/kernels/cuda/ptx.h"

namespace pagefuse::cuda {
namespace {

// The sequence with a token.
__device__ int64_t SequenceOf(const AttentionBatch& batch, int64_t token) {
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

__global__ void __launch_bounds__(join::kThreads)
    DecodeJoinKernel(const __grid_constant__ PagedAttention p,
                     const __grid_constant__ DecodePlan plan, const int32_t* starts) {
  ptx::WaitForKernelBefore();
  const PageSchedule schedule = {starts, static_cast<int>(p.batch.num_sequences), plan.chunks,
                                 plan.ctas};
  const int64_t row = blockIdx.x;
  const RowParts parts = PartsOf(p, plan, schedule, row);
  const join::SharedJoin shared =
      join::PlaceShared(static_cast<int>(p.batch.head_size), plan.ctas * plan.phases);
  join::JoinRow(p, row, parts.count(), 1, shared, [&](int i) -> join::Part {
    const int64_t number = parts.Number(p, plan, schedule, i);
    if (number < 0) return {0, 0, 0};
    return {number, p.partial_sums[2 * number], p.partial_sums[2 * number + 1]};
  });
}

}  // namespace

Error LaunchDecodeJoin(const PagedAttention& p, const DecodePlan& plan, const int32_t* starts,
                       Stream stream) {
  const auto rows = static_cast<unsigned>(p.batch.num_tokens * p.batch.num_heads);
  const LaunchShape shape = {dim3(rows), dim3(join::kThreads),
                             join::SharedBytes(p.batch.head_size, plan.ctas * plan.phases)};
  return Launch(DecodeJoinKernel, shape, stream, p, plan, starts);
}

}  // namespace pagefuse::cuda
