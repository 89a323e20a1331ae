// SPDX-License-Identifier: Apache-2.0
// A block of threads a sequence.
#include "pagefuse/ops/kernels/cuda/launch_kernel.h"
#include "pagefuse/ops/kernels/cuda/paged_scores_check.h"
#include "pagefuse/ops/kernels/cuda/ptx.h"

namespace pagefuse::cuda {
namespace {

constexpr int kThreads = 128;

// Whether sequence b has rows. Starts that are wrong are told.
__device__ bool HasRows(const PagedScoresCheck& p, int64_t b) {
  const MqaLogits& scores = p.scores;
  if (scores.starts == nullptr) return true;
  const int64_t begin = scores.starts[b], end = scores.starts[b + 1];
  const auto tell = [&](int64_t at, int64_t value) {
    if (threadIdx.x == 0) p.errors.Tell(p.starts, at, value);
  };
  if (b == 0 && begin != 0) tell(0, begin);
  if (end < begin || (b + 1 == scores.sequences && end != scores.rows)) tell(b + 1, end);
  return begin != end;
}

__global__ void __launch_bounds__(kThreads)
    PagedScoresCheckKernel(const __grid_constant__ PagedScoresCheck p) {
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  const MqaLogits& scores = p.scores;
  const int64_t b = blockIdx.x;
  const int64_t length = scores.lengths[b], used = length / scores.ratio;
  const int64_t room = scores.table_columns * scores.keys.block_size;
  const bool has_rows = HasRows(p, b);
  if (length < 0 || used > min(room, scores.width)) {
    if (threadIdx.x == 0) p.errors.Tell(p.lengths, b, length);
    return;
  }
  const int64_t blocks =
      has_rows ? (used + scores.keys.block_size - 1) / scores.keys.block_size : 0;
  for (int64_t i = threadIdx.x; i < blocks; i += kThreads) {
    const int64_t at = b * scores.table_columns + i, block = scores.block_table[at];
    if (block < 0 || block >= scores.keys.num_blocks) p.errors.Tell(p.tables, at, block);
  }
}

}  // namespace

Error LaunchPagedScoresCheck(const PagedScoresCheck& check, Stream stream) {
  if (check.scores.sequences == 0) return 0;
  if (check.scores.sequences > INT32_MAX) return kTooLarge;
  return Launch(PagedScoresCheckKernel,
                {.grid = static_cast<unsigned>(check.scores.sequences), .block = kThreads}, stream,
                check);
}

}  // namespace pagefuse::cuda
