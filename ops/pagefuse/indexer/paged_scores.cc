// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/pagefuse/indexer/paged_scores.h"

#include <limits>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/kernels/formats/grouped_row.h"
#include "pagefuse/ops/pagefuse/checks.h"
#include "pagefuse/ops/pagefuse/packed_batch.h"

namespace pagefuse::pagefuse_ops {
namespace {

constexpr PackedBatchPorts kBatch = {.tokens = kPagedQ,
                                     .query_start_loc = kPagedStarts,
                                     .seq_lens = kPagedLengths,
                                     .block_table = kPagedTables};

absl::StatusOr<Dim> WidthOf(const ShapeContext& c) {
  if (!c.has_input(kPagedWidth)) return c.size("MB") * c.size("BS");
  return HeldSize(c, kPagedWidth, std::numeric_limits<int32_t>::max());
}

bool IsPacked(const KernelArgs& args) { return args.input(kPagedStarts).present(); }

// Where the rows of sequence b begin, and those of the last sequence end.
int64_t FirstRow(const KernelArgs& args, int64_t b) {
  if (!IsPacked(args)) return b * args.input(kPagedQ).dim(1);
  return args.input(kPagedStarts).as<const int32_t>()[b];
}

absl::Status SetKeys(const KernelArgs& args, MqaLogitsProblem& problem) {
  PF_ASSIGN_OR_RETURN(const std::string format, args.node->StringAttribute("format", kKeysOfCodes));
  const TensorArg& cache = args.input(kPagedKeys);
  const int64_t row_bytes = cache.dim(-1) * BitWidth(cache.dtype) / 8;
  const PagedBytes paged = {.num_blocks = cache.dim(0),
                            .block_size = std::max<int64_t>(cache.dim(1), 1),
                            .block_bytes = cache.block_bytes()};
  if (format == kKeysOfNumbers) {
    problem.keys = PlainRows(row_bytes, paged, cache.data);
    problem.key_type = cache.dtype;
    return absl::OkStatus();
  }
  const bool packed = format == kKeysOfFourBits;
  const GroupedRowFormat rows = packed ? IndexerMxfp4Row(problem.head_size)
                                       : IndexerFp8Row(problem.head_size, problem.head_size);
  problem.keys = GroupedRows(rows, paged, cache.data);
  if (packed) problem.key_groups = rows;
  return absl::OkStatus();
}

int64_t TableColumns(const KernelArgs& args) {
  return CheckedMul(args.input(kPagedTables).dim(1), args.input(kPagedKeys).dim(1))
      .value_or(std::numeric_limits<int64_t>::max());
}

}  // namespace

OpDef& DeclarePagedScores(OpDef& op) {
  using enum DataType;
  return op.Attr("format", std::string(kKeysOfCodes))
      .OneOf({kKeysOfCodes, kKeysOfNumbers, kKeysOfFourBits})
      .Attr("ratio", int64_t{1}, "tokens a key; context_lens counts tokens")
      .AtLeast(1)
      .Types("Q", {kFloat8E4M3FN, kUint8, kFloat, kFloat16, kBfloat16})
      .Types("TQ", {kFloat, kFloat16, kBfloat16})
      .Types("TC", {kFloat, kFloat16, kBfloat16})
      .Let("unit", "32 if format = mxfp4, else 1")
      .Let("row", "D if format = bf16, D/2 + D/32 if format = mxfp4, else D + 4")
      .Let("rows", "T if query_start_loc, else B * n")
      .Let("width", "max_model_len, or MB * BS without it", WidthOf);
}

int64_t PagedWidth(const KernelArgs& args) {
  const TensorArg& width = args.input(kPagedWidth);
  return width.present() ? *width.as<const int64_t>() : TableColumns(args);
}

absl::StatusOr<MqaLogitsProblem> PagedScores(const KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const int64_t ratio, args.node->IntAttribute("ratio", 1));
  const TensorArg& q = args.input(kPagedQ);
  MqaLogitsProblem problem;
  if (q.dtype != DataType::kUint8) problem.query_type = q.dtype;
  problem.q = q.as<const uint8_t>();
  problem.weights = args.input(kPagedWeights).as<const float>();
  problem.rows = args.input(kPagedWeights).dim(0);
  problem.heads = q.dim(-2);
  problem.head_size = q.dim(-1);
  PF_RETURN_IF_ERROR(SetKeys(args, problem));
  problem.block_table = args.input(kPagedTables).as<const int32_t>();
  problem.table_columns = args.input(kPagedTables).dim(1);
  for (int64_t b = 0; b < args.input(kPagedLengths).size(); ++b) {
    const int64_t length = args.input(kPagedLengths).as<const int32_t>()[b];
    const int64_t end = FirstRow(args, b + 1);
    for (int64_t row = FirstRow(args, b); row < end; ++row) {
      const int64_t tokens = std::max<int64_t>(length - (end - row) + 1, 0);
      problem.sequences.push_back(static_cast<int32_t>(b));
      problem.ranges.push_back({0, tokens / ratio});
    }
  }
  return problem;
}

absl::Status CheckPagedScores(const KernelArgs& args, int64_t width) {
  PF_ASSIGN_OR_RETURN(const int64_t ratio, args.node->IntAttribute("ratio", 1));
  if (IsPacked(args)) PF_RETURN_IF_ERROR(CheckQueryStarts(args, kBatch));
  const TensorArg& cache = args.input(kPagedKeys);
  const int64_t block_size = cache.dim(1);
  const int64_t capacity = TableColumns(args);
  const int64_t limit = std::min(capacity, width);
  for (int64_t b = 0; b < args.input(kPagedLengths).size(); ++b) {
    const int64_t length = args.input(kPagedLengths).as<const int32_t>()[b];
    if (length < 0 || length / ratio > limit) {
      return InputValueError(
          args, kPagedLengths,
          StrCat("expected 0 to ", limit, ratio == 1 ? "" : StrCat(" times ", ratio),
                 " (the logits have ", width, " columns, the block table has room for ", capacity,
                 "), got ", length, " at ", b));
    }
    if (FirstRow(args, b) == FirstRow(args, b + 1)) continue;
    const int64_t used = length / ratio;
    const int64_t blocks = block_size == 0 ? 0 : (used + block_size - 1) / block_size;
    PF_RETURN_IF_ERROR(CheckBlocks(args, kBatch, b, {0, blocks}, cache.dim(0)));
  }
  return absl::OkStatus();
}

absl::StatusOr<PagedMqaLogitsBody> PagedScoresBody(const Node& node) {
  PF_ASSIGN_OR_RETURN(const int64_t ratio, node.IntAttribute("ratio", 1));
  PF_ASSIGN_OR_RETURN(const std::string format, node.StringAttribute("format", kKeysOfCodes));
  return PagedMqaLogitsBody{.query_type = node.input(kPagedQ)->dtype(),
                            .key_type = node.input(kPagedKeys)->dtype(),
                            .packed_keys = format == kKeysOfFourBits,
                            .has_length = node.input(kPagedWidth) != nullptr,
                            .packed = node.input(kPagedStarts) != nullptr,
                            .ratio = ratio};
}

}  // namespace pagefuse::pagefuse_ops
