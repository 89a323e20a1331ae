// Checks of PagedAttention's input values, before any kernel runs.

#include "pagefuse/ir/status_macros.h"
#include "pagefuse/ir/str_cat.h"
#include "pagefuse/ops/pagefuse/attention/paged_attention_problem.h"
#include "pagefuse/ops/pagefuse/checks.h"

namespace pagefuse {
namespace {

using pagefuse_ops::InputRangeError;
using pagefuse_ops::InputValueError;

absl::Status CheckStarts(const KernelArgs& args, const PagedAttentionProblem& p, int input) {
  if (p.query_start_loc[0] != 0) {
    return InputValueError(args, input, StrCat("expected 0 first, got ", p.query_start_loc[0]));
  }
  for (int64_t b = 0; b < p.num_sequences; ++b) {
    if (p.query_start_loc[b + 1] >= p.query_start_loc[b]) continue;
    return InputValueError(args, input,
                           StrCat("falls from ", p.query_start_loc[b], " to ",
                                  p.query_start_loc[b + 1], " at sequence ", b));
  }
  const int64_t total = p.query_start_loc[p.num_sequences];
  if (total == p.num_tokens) return absl::OkStatus();
  return InputValueError(args, input,
                         StrCat("expected ", p.num_tokens,
                                " last, the number of tokens of \"query\", "
                                "got ",
                                total));
}

absl::Status CheckSequence(const KernelArgs& args, const PagedAttentionProblem& p,
                           const PagedBatchPorts& ports, int64_t b) {
  const int64_t length = p.length(b);
  if (length < 0) {
    return InputValueError(args, ports.seq_lens,
                           StrCat("expected 0 or more, got ", length, " at sequence ", b));
  }
  const int64_t needed = (length + p.block_size - 1) / p.block_size;
  if (needed > p.table_columns) {
    return InputValueError(
        args, ports.block_table,
        StrCat("expected at least ", needed, " columns for the ", length, " tokens of sequence ", b,
               " in \"seq_lens\", got ", p.table_columns));
  }
  if (p.qq_bias != nullptr && p.num_queries(b) > p.qq_size) {
    return InputValueError(
        args, kPaQqBias,
        StrCat("expected at least ", p.num_queries(b), " rows for the query tokens of sequence ", b,
               " in \"query_start_loc\", got ", p.qq_size));
  }
  // Blocks that no row sees may be gone: a cache frees those behind a sliding window.
  const KeyInterval hull = p.Hull(b);
  if (hull.empty()) return absl::OkStatus();
  const int32_t* row = p.block_table + b * p.table_columns;
  for (int64_t i = hull.begin / p.block_size; i <= (hull.end - 1) / p.block_size; ++i) {
    if (row[i] >= 0 && row[i] < p.num_blocks) continue;
    return InputRangeError(
        args, ports.block_table,
        StrCat("block ", row[i], " at [", b, ", ", i, "] is outside [0, ", p.num_blocks, ")"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidatePagedBatch(const KernelArgs& args, const PagedAttentionProblem& problem,
                                const PagedBatchPorts& ports) {
  PF_RETURN_IF_ERROR(CheckStarts(args, problem, ports.query_start_loc));
  for (int64_t b = 0; b < problem.num_sequences; ++b) {
    PF_RETURN_IF_ERROR(CheckSequence(args, problem, ports, b));
  }
  return absl::OkStatus();
}

absl::Status ValidatePagedAttention(const KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const PagedAttentionProblem problem, MakePagedAttentionProblem(args));
  return ValidatePagedBatch(args, problem, kPagedAttentionBatch);
}

}  // namespace pagefuse
