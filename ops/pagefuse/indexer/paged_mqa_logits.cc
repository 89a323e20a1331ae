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

namespace pagefuse::pagefuse_ops {
namespace {

constexpr Ports kIn({
    {"q", "Q", "[B, n, H, D], D >= 1"},
    {"kv_cache", "uint8", "[NB, BS, 1, D + 4] or [NB, BS, D + 4]"},
    {"weights", "float", "[B * n, H]"},
    PortSpec("context_lens", "int32", "[B]").Metadata(),
    PortSpec("block_tables", "int32", "[B, MB]").Metadata(),
    PortSpec("max_model_len", "int64", "[] or [1]").Optional().Metadata(),
});
constexpr Ports kOut({{"logits", "float", "[B * n, width]"}});
constexpr int64_t kScaleBytes = sizeof(float);

absl::StatusOr<Dim> WidthOf(const ShapeContext& c) {
  if (!c.has_input(kIn["max_model_len"])) return c.size("MB") * c.size("BS");
  return HeldSize(c, kIn["max_model_len"], std::numeric_limits<int32_t>::max());
}

absl::StatusOr<MqaLogitsProblem> MakeProblem(const KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const int64_t clean, args.node->IntAttribute("clean_logits", 1));
  const TensorArg& q = args.input(kIn["q"]);
  const TensorArg& cache = args.input(kIn["kv_cache"]);
  const int64_t queries = q.dim(1);
  MqaLogitsProblem problem;
  problem.q = q.as<const uint8_t>();
  problem.weights = args.input(kIn["weights"]).as<const float>();
  problem.rows = q.dim(0) * queries;
  problem.heads = q.dim(2);
  problem.head_size = q.dim(3);
  problem.width = args.output(0).dim(1);
  const PagedBytes paged = {.num_blocks = cache.dim(0),
                            .block_size = std::max<int64_t>(cache.dim(1), 1),
                            .block_bytes = cache.dim(1) * (problem.head_size + kScaleBytes)};
  problem.keys =
      GroupedRows(IndexerFp8Row(problem.head_size, problem.head_size), paged, cache.data);
  problem.rows_a_sequence = std::max<int64_t>(queries, 1);
  problem.block_table = args.input(kIn["block_tables"]).as<const int32_t>();
  problem.table_columns = args.input(kIn["block_tables"]).dim(1);
  problem.logits = args.output(0).as<float>();
  for (int64_t row = 0; row < problem.rows; ++row) {
    const int64_t length = args.input(kIn["context_lens"]).as<const int32_t>()[row / queries];
    const int64_t seen = length - queries + row % queries + 1;
    problem.ranges.push_back({0, std::max<int64_t>(seen, 0)});
    problem.filled.push_back(clean != 0 ? problem.width : length);
  }
  return problem;
}

// Lengths are within the width and the block table, and used entries of the table are blocks.
absl::Status Validate(const KernelArgs& args) {
  const TensorArg& cache = args.input(kIn["kv_cache"]);
  const TensorArg& tables = args.input(kIn["block_tables"]);
  const int64_t block_size = cache.dim(1);
  const int64_t capacity =
      CheckedMul(tables.dim(1), block_size).value_or(std::numeric_limits<int64_t>::max());
  const int64_t limit = std::min(capacity, args.output(0).dim(1));
  for (int64_t b = 0; b < args.input(kIn["context_lens"]).size(); ++b) {
    const int64_t length = args.input(kIn["context_lens"]).as<const int32_t>()[b];
    if (length < 0 || length > limit) {
      return InputValueError(
          args, kIn["context_lens"],
          StrCat("expected 0 to ", limit, " (the logits have ", args.output(0).dim(1),
                 " columns, the block table has room for ", capacity, "), got ", length, " at ",
                 b));
    }
    if (args.input(kIn["q"]).dim(1) == 0) continue;
    const int32_t* row = tables.as<const int32_t>() + b * tables.dim(1);
    for (int64_t i = 0; i * block_size < length; ++i) {
      if (row[i] >= 0 && row[i] < cache.dim(0)) continue;
      return InputRangeError(
          args, kIn["block_tables"],
          StrCat("block ", row[i], " at [", b, ", ", i, "] is outside [0, ", cache.dim(0), ")"));
    }
  }
  return absl::OkStatus();
}

// With clean_logits 0 the masked logits are one of the allowed results.
absl::StatusOr<DecompositionVariant> Decompose(const Node& node) {
  const PagedMqaLogitsBody body = {.uint8_q = node.input(kIn["q"])->dtype() == DataType::kUint8,
                                   .has_length = node.input(kIn["max_model_len"]) != nullptr};
  return DecompositionVariant{body.Name(), body.Text(), {}};
}

std::vector<DecompositionVariant> Variants() {
  std::vector<DecompositionVariant> variants;
  for (int bits = 0; bits < 4; ++bits) {
    const PagedMqaLogitsBody body = {(bits & 1) != 0, (bits & 2) != 0};
    variants.push_back(
        {body.Name(), body.Text(), {{"clean_logits", Attribute{int64_t{1}, "", ""}}}});
  }
  return variants;
}

}  // namespace

OpDef PagedMqaLogitsDef() {
  using enum DataType;
  OpDef op =
      OpDef("pagefuse", "PagedMqaLogits", 1)
          .Doc(
              "MqaLogits over a paged cache of e4m3fn keys: a block is the codes of its BS keys, "
              "then "
              "their float scales. Row b * n + i is the query at position context_lens[b] - n + i "
              "and "
              "sees the keys up to its own; uint8 stands for float8e4m3fn.")
          .Inputs(kIn)
          .Outputs(kOut)
          .FlagAttr(
              "clean_logits", int64_t{1},
              "1: -inf in all columns that a row does not see; 0: anything at or past the context "
              "length")
          .Types("Q", {kFloat8E4M3FN, kUint8})
          .Let("width", "max_model_len, or MB * BS without it", WidthOf)
          .Validate(Validate)
          .Decomposition(Decompose)
          .Variants(Variants);
  AddMqaLogitsKernels(op, MakeProblem);
  return op;
}

}  // namespace pagefuse::pagefuse_ops
