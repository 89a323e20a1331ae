// Checks of PagedAttention's input values, before any kernel runs.

#include "pagefuse/ir/status_macros.h"
#include "pagefuse/ir/str_cat.h"
#include "pagefuse/ops/pagefuse/paged_attention_problem.h"

namespace pagefuse {
namespace {

std::string Message(const KernelArgs& args, std::string_view input, std::string_view what) {
  return StrCat(args.node->Description(), ": input ", input, ": ", what);
}

absl::Status Invalid(const KernelArgs& args, std::string_view input, std::string_view what) {
  return absl::InvalidArgumentError(Message(args, input, what));
}

constexpr std::string_view kStarts = "3 \"query_start_loc\"";
constexpr std::string_view kLens = "4 \"seq_lens\"";
constexpr std::string_view kTable = "5 \"block_table\"";
constexpr std::string_view kBias = "13 \"qq_bias\"";

absl::Status CheckStarts(const KernelArgs& args, const PagedAttentionProblem& p) {
  if (p.query_start_loc[0] != 0) {
    return Invalid(args, kStarts, StrCat("expected 0 first, got ", p.query_start_loc[0]));
  }
  for (int64_t b = 0; b < p.num_sequences; ++b) {
    if (p.query_start_loc[b + 1] >= p.query_start_loc[b]) continue;
    return Invalid(args, kStarts,
                   StrCat("falls from ", p.query_start_loc[b], " to ", p.query_start_loc[b + 1],
                          " at sequence ", b));
  }
  const int64_t total = p.query_start_loc[p.num_sequences];
  if (total == p.num_tokens) return absl::OkStatus();
  return Invalid(args, kStarts,
                 StrCat("expected ", p.num_tokens,
                        " last, the number of tokens of \"query\", "
                        "got ",
                        total));
}

absl::Status CheckSequence(const KernelArgs& args, const PagedAttentionProblem& p, int64_t b) {
  const int64_t length = p.length(b);
  if (length < 0) {
    return Invalid(args, kLens, StrCat("expected 0 or more, got ", length, " at sequence ", b));
  }
  const int64_t needed = (length + p.block_size - 1) / p.block_size;
  if (needed > p.table_columns) {
    return Invalid(args, kTable,
                   StrCat("expected at least ", needed, " columns for the ", length,
                          " tokens of sequence ", b, " in \"seq_lens\", got ", p.table_columns));
  }
  if (p.qq_bias != nullptr && p.num_queries(b) > p.qq_size) {
    return Invalid(
        args, kBias,
        StrCat("expected at least ", p.num_queries(b), " rows for the query tokens of sequence ", b,
               " in \"query_start_loc\", got ", p.qq_size));
  }
  // Blocks that no row sees may be gone: a cache frees those behind a sliding window.
  const KeyInterval hull = p.Hull(b);
  if (hull.empty()) return absl::OkStatus();
  const int32_t* row = p.block_table + b * p.table_columns;
  for (int64_t i = hull.begin / p.block_size; i <= (hull.end - 1) / p.block_size; ++i) {
    if (row[i] >= 0 && row[i] < p.num_blocks) continue;
    return absl::OutOfRangeError(Message(
        args, kTable,
        StrCat("block ", row[i], " at [", b, ", ", i, "] is outside [0, ", p.num_blocks, ")")));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidatePagedAttention(const KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const PagedAttentionProblem problem, MakePagedAttentionProblem(args));
  PF_RETURN_IF_ERROR(CheckStarts(args, problem));
  for (int64_t b = 0; b < problem.num_sequences; ++b) {
    PF_RETURN_IF_ERROR(CheckSequence(args, problem, b));
  }
  return absl::OkStatus();
}

}  // namespace pagefuse
