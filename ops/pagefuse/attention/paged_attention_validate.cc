// SPDX-License-Identifier: Apache-2.0
// Checks of PagedAttention's input values, before any kernel runs.

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/pagefuse/attention/paged_attention.h"
#include "pagefuse/ops/pagefuse/attention/paged_attention_call.h"
#include "pagefuse/ops/pagefuse/checks.h"
#include "pagefuse/ops/pagefuse/packed_batch.h"

namespace pagefuse {
namespace {

using pagefuse_ops::InputValueError;

absl::Status CheckSequence(const KernelArgs& args, const PagedAttentionProblem& p,
                           const PackedBatchPorts& ports, int64_t b) {
  PF_RETURN_IF_ERROR(CheckLength(args, ports, b, p.block_size));
  if (p.qq_bias != nullptr && p.num_queries(b) > p.qq_size) {
    return InputValueError(
        args, kPagedAttentionIn["qq_bias"],
        StrCat("expected at least ", p.num_queries(b), " rows for the query tokens of sequence ", b,
               " in \"query_start_loc\", got ", p.qq_size));
  }
  // Blocks that no row sees may be gone: a cache frees those behind a sliding window.
  const KeyInterval hull = p.Hull(b);
  if (hull.empty()) return absl::OkStatus();
  const TableColumns used = {hull.begin / p.block_size, (hull.end - 1) / p.block_size + 1};
  return CheckBlocks(args, ports, b, used, p.num_blocks);
}

}  // namespace

absl::Status ValidatePagedBatch(const KernelArgs& args, const PagedAttentionProblem& problem,
                                const PackedBatchPorts& ports) {
  if (args.input(ports.query_start_loc).present()) {
    PF_RETURN_IF_ERROR(CheckQueryStarts(args, ports));
  }
  for (int64_t b = 0; b < problem.num_sequences; ++b) {
    PF_RETURN_IF_ERROR(CheckSequence(args, problem, ports, b));
  }
  return absl::OkStatus();
}

absl::Status ValidatePagedAttention(const KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const PagedAttentionProblem problem, MakePagedAttentionProblem(args));
  return ValidatePagedBatch(args, problem, PackedBatchOf(kPagedAttentionIn));
}

}  // namespace pagefuse
