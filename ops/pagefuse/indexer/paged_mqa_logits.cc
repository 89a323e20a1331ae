// PagedMqaLogits: the index score of every key for every query, keys in a paged cache. Equals
// vLLM's fp8_paged_mqa_logits_triton (DeepSeek-V3.2 and V4).
#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/str_cat.h"
#include "pagefuse/kernels/formats/grouped_row.h"
#include "pagefuse/ops/op_def.h"
#include "pagefuse/ops/pagefuse/checks.h"
#include "pagefuse/ops/pagefuse/indexer/mqa_logits.h"
#include "pagefuse/ops/pagefuse/indexer/paged_mqa_logits_body.h"
#include "pagefuse/ops/pagefuse/packed_batch.h"

namespace pagefuse::pagefuse_ops {
namespace {

constexpr Ports kIn({
    {"q", "TQ if format = bf16, else Q",
     "[T, H, D] if query_start_loc, else [B, n, H, D], D >= 1, D % unit = 0"},
    {"kv_cache", "TC if format = bf16, else uint8", "[NB, BS, 1, row] or [NB, BS, row]"},
    {"weights", "float", "[rows, H]"},
    PortSpec("context_lens", "int32", "[B]").Metadata(),
    PortSpec("block_tables", "int32", "[B, MB]").Metadata(),
    PortSpec("max_model_len", "int64", "[] or [1]").Optional().Metadata(),
    PortSpec("query_start_loc", "int32", "[B + 1]").Optional().Metadata(),
});
constexpr Ports kOut({{"logits", "float", "[rows, width]"}});
constexpr char kCodes[] = "fp8";
constexpr char kNumbers[] = "bf16";
constexpr char kPacked[] = "mxfp4";
constexpr PackedBatchPorts kBatch = {.tokens = kIn["q"],
                                     .query_start_loc = kIn["query_start_loc"],
                                     .seq_lens = kIn["context_lens"],
                                     .block_table = kIn["block_tables"]};

absl::StatusOr<Dim> WidthOf(const ShapeContext& c) {
  if (!c.has_input(kIn["max_model_len"])) return c.size("MB") * c.size("BS");
  return HeldSize(c, kIn["max_model_len"], std::numeric_limits<int32_t>::max());
}

bool IsPacked(const KernelArgs& args) { return args.input(kIn["query_start_loc"]).present(); }

// Where the rows of sequence b begin, and those of the last sequence end.
int64_t FirstRow(const KernelArgs& args, int64_t b) {
  if (!IsPacked(args)) return b * args.input(kIn["q"]).dim(1);
  return args.input(kIn["query_start_loc"]).as<const int32_t>()[b];
}

absl::Status SetKeys(const KernelArgs& args, MqaLogitsProblem& problem) {
  PF_ASSIGN_OR_RETURN(const std::string format, args.node->StringAttribute("format", kCodes));
  const TensorArg& cache = args.input(kIn["kv_cache"]);
  const int64_t row_bytes = cache.dim(-1) * BitWidth(cache.dtype) / 8;
  const PagedBytes paged = {.num_blocks = cache.dim(0),
                            .block_size = std::max<int64_t>(cache.dim(1), 1),
                            .block_bytes = cache.dim(1) * row_bytes};
  if (format == kNumbers) {
    problem.keys = PlainRows(row_bytes, paged, cache.data);
    problem.key_type = cache.dtype;
    return absl::OkStatus();
  }
  const bool packed = format == kPacked;
  const GroupedRowFormat rows = packed ? IndexerMxfp4Row(problem.head_size)
                                       : IndexerFp8Row(problem.head_size, problem.head_size);
  problem.keys = GroupedRows(rows, paged, cache.data);
  if (packed) problem.key_groups = rows;
  return absl::OkStatus();
}

absl::StatusOr<MqaLogitsProblem> MakeProblem(const KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const int64_t clean, args.node->IntAttribute("clean_logits", 1));
  PF_ASSIGN_OR_RETURN(const int64_t ratio, args.node->IntAttribute("ratio", 1));
  const TensorArg& q = args.input(kIn["q"]);
  MqaLogitsProblem problem;
  if (q.dtype != DataType::kUint8) problem.query_type = q.dtype;
  problem.q = q.as<const uint8_t>();
  problem.weights = args.input(kIn["weights"]).as<const float>();
  problem.rows = args.output(0).dim(0);
  problem.width = args.output(0).dim(1);
  problem.heads = q.dim(-2);
  problem.head_size = q.dim(-1);
  PF_RETURN_IF_ERROR(SetKeys(args, problem));
  problem.block_table = args.input(kIn["block_tables"]).as<const int32_t>();
  problem.table_columns = args.input(kIn["block_tables"]).dim(1);
  problem.logits = args.output(0).as<float>();
  for (int64_t b = 0; b < args.input(kIn["context_lens"]).size(); ++b) {
    const int64_t length = args.input(kIn["context_lens"]).as<const int32_t>()[b];
    const int64_t end = FirstRow(args, b + 1);
    for (int64_t row = FirstRow(args, b); row < end; ++row) {
      const int64_t tokens = std::max<int64_t>(length - (end - row) + 1, 0);
      problem.sequences.push_back(static_cast<int32_t>(b));
      problem.ranges.push_back({0, tokens / ratio});
      problem.filled.push_back(clean != 0 ? problem.width : length / ratio);
    }
  }
  return problem;
}

// Lengths are within the width and the block table, and used entries of the table are blocks.
absl::Status Validate(const KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const int64_t ratio, args.node->IntAttribute("ratio", 1));
  if (IsPacked(args)) PF_RETURN_IF_ERROR(CheckQueryStarts(args, kBatch));
  const TensorArg& cache = args.input(kIn["kv_cache"]);
  const TensorArg& tables = args.input(kIn["block_tables"]);
  const int64_t block_size = cache.dim(1);
  const int64_t capacity =
      CheckedMul(tables.dim(1), block_size).value_or(std::numeric_limits<int64_t>::max());
  const int64_t limit = std::min(capacity, args.output(0).dim(1));
  for (int64_t b = 0; b < args.input(kIn["context_lens"]).size(); ++b) {
    const int64_t length = args.input(kIn["context_lens"]).as<const int32_t>()[b];
    if (length < 0 || length / ratio > limit) {
      return InputValueError(
          args, kIn["context_lens"],
          StrCat("expected 0 to ", limit, ratio == 1 ? "" : StrCat(" times ", ratio),
                 " (the logits have ", args.output(0).dim(1),
                 " columns, the block table has room for ", capacity, "), got ", length, " at ",
                 b));
    }
    if (FirstRow(args, b) == FirstRow(args, b + 1)) continue;
    const int64_t used = length / ratio;
    const int64_t blocks = block_size == 0 ? 0 : (used + block_size - 1) / block_size;
    PF_RETURN_IF_ERROR(CheckBlocks(args, kBatch, b, {0, blocks}, cache.dim(0)));
  }
  return absl::OkStatus();
}

// With clean_logits 0 the masked logits are one of the allowed results.
absl::StatusOr<DecompositionVariant> Decompose(const Node& node) {
  PF_ASSIGN_OR_RETURN(const int64_t ratio, node.IntAttribute("ratio", 1));
  PF_ASSIGN_OR_RETURN(const std::string format, node.StringAttribute("format", kCodes));
  const PagedMqaLogitsBody body = {.query_type = node.input(kIn["q"])->dtype(),
                                   .key_type = node.input(kIn["kv_cache"])->dtype(),
                                   .packed_keys = format == kPacked,
                                   .has_length = node.input(kIn["max_model_len"]) != nullptr,
                                   .packed = node.input(kIn["query_start_loc"]) != nullptr,
                                   .ratio = ratio};
  return DecompositionVariant{body.Name(), body.Text(), {}};
}

std::vector<DecompositionVariant> Variants() {
  std::vector<DecompositionVariant> variants;
  const auto add = [&](const PagedMqaLogitsBody& body, const char* format) {
    variants.push_back({body.Name(),
                        body.Text(),
                        {{"clean_logits", Attribute{int64_t{1}, "", ""}},
                         {"format", Attribute{std::string(format), "", ""}}}});
  };
  for (int bits = 0; bits < 4; ++bits) {
    add({.query_type = (bits & 1) != 0 ? DataType::kUint8 : DataType::kFloat8E4M3FN,
         .has_length = (bits & 2) != 0},
        kCodes);
  }
  add({.packed = true}, kCodes);
  add({.query_type = DataType::kFloat, .packed = true}, kCodes);
  add({.query_type = DataType::kFloat, .key_type = DataType::kFloat, .packed = true}, kNumbers);
  add({.query_type = DataType::kFloat, .packed_keys = true, .packed = true}, kPacked);
  return variants;
}

}  // namespace

OpDef PagedMqaLogitsDef() {
  using enum DataType;
  OpDef op =
      OpDef("pagefuse", "PagedMqaLogits", 1)
          .Doc(
              "MqaLogits over a paged cache. format fp8: e4m3fn keys, a block is the codes of its "
              "BS keys, then their float scales, queries are codes too or numbers; uint8 stands for "
              "float8e4m3fn. bf16: bfloat16, float or float16 numbers without scales. mxfp4: e2m1 keys, two elements a byte, then a "
              "power of two for 32 of them, for queries that are numbers. The n queries of a sequence are its last "
              "tokens: those of sequence b are rows b * n to b * n + n - 1, or with "
              "query_start_loc rows query_start_loc[b] to query_start_loc[b + 1] - 1. A query at "
              "position p sees the first (p + 1) / ratio keys.")
          .Inputs(kIn)
          .Outputs(kOut)
          .FlagAttr(
              "clean_logits", int64_t{1},
              "1: -inf in all columns that a row does not see; 0: anything at or past the context "
              "length")
          .Attr("format", std::string(kCodes))
          .OneOf({kCodes, kNumbers, kPacked})
          .Attr("ratio", int64_t{1}, "tokens a key; context_lens counts tokens")
          .AtLeast(1)
          .Types("Q", {kFloat8E4M3FN, kUint8, kFloat, kFloat16, kBfloat16})
          .Types("TQ", {kFloat, kFloat16, kBfloat16})
          .Types("TC", {kFloat, kFloat16, kBfloat16})
          .Let("unit", "32 if format = mxfp4, else 1")
          .Let("row", "D if format = bf16, D/2 + D/32 if format = mxfp4, else D + 4")
          .Let("rows", "T if query_start_loc, else B * n")
          .Let("width", "max_model_len, or MB * BS without it", WidthOf)
          .Validate(Validate)
          .Decomposition(Decompose)
          .Variants(Variants);
  AddMqaLogitsKernels(op, MakeProblem);
  return op;
}

}  // namespace pagefuse::pagefuse_ops
