// SPDX-License-Identifier: Apache-2.0
// Partial results of splits of the keys joined to the outputs: a CTA a row.
#include "pagefuse/ops/kernels/cuda/attention_join.h"
#include "pagefuse/ops/kernels/cuda/launch_kernel.h"
#include "pagefuse/ops/kernels/cuda/ptx.h"

namespace pagefuse::cuda {
namespace {

__global__ void __launch_bounds__(join::kThreads)
    AttentionJoinKernel(const __grid_constant__ PagedAttention p, int splits) {
  constexpr float kLog2E = 1.4426950408889634f;
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  const int64_t rows = p.batch.num_tokens * p.batch.num_heads;
  const int64_t row = blockIdx.x;
  const join::SharedJoin shared = join::PlaceShared(static_cast<int>(p.batch.head_size), splits);
  join::JoinRow(p, row, splits, kLog2E, shared, [&](int split) -> join::Part {
    const int64_t number = split * rows + row;
    return {number, p.partial_sums[2 * number], p.partial_sums[2 * number + 1]};
  });
}

}  // namespace

Error LaunchAttentionJoin(const PagedAttention& p, int splits, Stream stream) {
  const auto rows = static_cast<unsigned>(p.batch.num_tokens * p.batch.num_heads);
  const LaunchShape shape = {dim3(rows), dim3(join::kThreads),
                             join::SharedBytes(p.batch.head_size, splits)};
  return Launch(AttentionJoinKernel, shape, stream, p, splits);
}

}  // namespace pagefuse::cuda
