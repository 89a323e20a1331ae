// PagedMqaLogits: the index score of every key for every query, keys in a paged cache. Equals
// vLLM's fp8_paged_mqa_logits_triton (DeepSeek-V3.2 and V4).
#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "pagefuse/ir/status_macros.h"
#include "pagefuse/ir/str_cat.h"
#include "pagefuse/ops/cache/grouped_row.h"
#include "pagefuse/ops/op_def.h"
#include "pagefuse/ops/pagefuse/checks.h"
#include "pagefuse/ops/pagefuse/indexer/mqa_logits.h"
#include "pagefuse/ops/pagefuse/indexer/paged_mqa_logits_body.h"
#include "pagefuse/ops/pagefuse/named_dims.h"

namespace pagefuse::pagefuse_ops {
namespace {

constexpr int kQ = 0;
constexpr int kCache = 1;
constexpr int kWeights = 2;
constexpr int kContextLens = 3;
constexpr int kTables = 4;
constexpr int kMaxLength = 5;
constexpr int64_t kScaleBytes = sizeof(float);

// The width of the logits, as far as it is known.
absl::StatusOr<Dim> WidthOf(ShapeContext& c, const NamedDims& dims) {
  if (!c.has_input(kMaxLength)) return dims.Get("MB") * dims.Get("BS");
  const Shape* shape = c.input_shape(kMaxLength);
  const bool one = shape == nullptr || shape->rank() == 0 ||
                   (shape->rank() == 1 && !Differ((*shape)[0], Dim(1)));
  if (!one) return c.InputError(kMaxLength, StrCat("expected [] or [1], got ", shape->ToString()));
  const std::optional<std::vector<Dim>> value = c.input_value(kMaxLength);
  if (!value || value->size() != 1 || !(*value)[0].known()) return c.FreshDim();
  const std::optional<int64_t> number = (*value)[0].constant();
  if (number && (*number < 0 || *number > std::numeric_limits<int32_t>::max())) {
    return c.InputError(kMaxLength, StrCat("expected 0 to ", std::numeric_limits<int32_t>::max(),
                                           ", got ", *number));
  }
  return (*value)[0];
}

absl::Status InferShapes(ShapeContext& c) {
  PF_RETURN_IF_ERROR(c.node().IntAttribute("clean_logits", 1).status());
  NamedDims dims(c);
  PF_RETURN_IF_ERROR(dims.Match(kQ, {"B", "n", "H", "D"}));
  if (const std::optional<int64_t> size = dims.Get("D").constant(); size && *size < 1) {
    return c.InputError(
        kQ, StrCat("expected a head size of at least 1, got ", c.input_shape(kQ)->ToString()));
  }
  dims.Set("D+4", dims.Get("D") + Dim(kScaleBytes));
  const Shape* cache = c.input_shape(kCache);
  if (cache != nullptr && cache->rank() == 3) {
    PF_RETURN_IF_ERROR(dims.Match(kCache, {"NB", "BS", "D+4"}));
  } else {
    PF_RETURN_IF_ERROR(dims.Match(kCache, {"NB", "BS", "1", "D+4"}));
  }
  dims.Set("B*n", dims.Get("B") * dims.Get("n"));
  PF_RETURN_IF_ERROR(dims.Match(kWeights, {"B*n", "H"}));
  PF_RETURN_IF_ERROR(dims.Match(kContextLens, {"B"}));
  PF_RETURN_IF_ERROR(dims.Match(kTables, {"B", "MB"}));
  PF_ASSIGN_OR_RETURN(const Dim width, WidthOf(c, dims));
  c.SetOutput(0, DataType::kFloat, Shape{dims.Get("B*n"), width});
  return absl::OkStatus();
}

absl::StatusOr<MqaLogitsProblem> MakeProblem(const KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const int64_t clean, args.node->IntAttribute("clean_logits", 1));
  const TensorArg& q = args.input(kQ);
  const TensorArg& cache = args.input(kCache);
  const int64_t queries = q.dim(1);
  MqaLogitsProblem problem;
  problem.q = q.as<const uint8_t>();
  problem.weights = args.input(kWeights).as<const float>();
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
  problem.block_table = args.input(kTables).as<const int32_t>();
  problem.table_columns = args.input(kTables).dim(1);
  problem.logits = args.output(0).as<float>();
  for (int64_t row = 0; row < problem.rows; ++row) {
    const int64_t length = args.input(kContextLens).as<const int32_t>()[row / queries];
    const int64_t seen = length - queries + row % queries + 1;
    problem.ranges.push_back({0, std::max<int64_t>(seen, 0)});
    problem.filled.push_back(clean != 0 ? problem.width : length);
  }
  return problem;
}

// Lengths are within the width and the block table, and used entries of the table are blocks.
absl::Status Validate(const KernelArgs& args) {
  const TensorArg& cache = args.input(kCache);
  const TensorArg& tables = args.input(kTables);
  const int64_t block_size = cache.dim(1);
  const int64_t capacity =
      CheckedMul(tables.dim(1), block_size).value_or(std::numeric_limits<int64_t>::max());
  const int64_t limit = std::min(capacity, args.output(0).dim(1));
  for (int64_t b = 0; b < args.input(kContextLens).size(); ++b) {
    const int64_t length = args.input(kContextLens).as<const int32_t>()[b];
    if (length < 0 || length > limit) {
      return InputValueError(
          args, kContextLens,
          StrCat("expected 0 to ", limit, " (the logits have ", args.output(0).dim(1),
                 " columns, the block table has room for ", capacity, "), got ", length, " at ",
                 b));
    }
    if (args.input(kQ).dim(1) == 0) continue;
    const int32_t* row = tables.as<const int32_t>() + b * tables.dim(1);
    for (int64_t i = 0; i * block_size < length; ++i) {
      if (row[i] >= 0 && row[i] < cache.dim(0)) continue;
      return InputRangeError(
          args, kTables,
          StrCat("block ", row[i], " at [", b, ", ", i, "] is outside [0, ", cache.dim(0), ")"));
    }
  }
  return absl::OkStatus();
}

// With clean_logits 0 the masked logits are one of the allowed results.
absl::StatusOr<DecompositionVariant> Decompose(const Node& node) {
  const PagedMqaLogitsBody body = {.uint8_q = node.input(kQ)->dtype() == DataType::kUint8,
                                   .has_length = node.input(kMaxLength) != nullptr};
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
  const auto required = PortKind::kRequired;
  const auto metadata = PortRole::kMetadata;
  OpDef op =
      OpDef("pagefuse", "PagedMqaLogits", 1)
          .Doc(
              "MqaLogits over a paged cache of e4m3fn keys: a block is the codes of its BS keys, "
              "then "
              "their float scales. Row b * n + i is the query at position context_lens[b] - n + i "
              "and "
              "sees the keys up to its own; uint8 stands for float8e4m3fn.")
          .Input("q", "Q", "[B, n, H, D]")
          .Input("kv_cache", "uint8", "[NB, BS, 1, D + 4] or [NB, BS, D + 4]")
          .Input("weights", "float", "[B * n, H]")
          .Input("context_lens", "int32", "[B]", required, metadata)
          .Input("block_tables", "int32", "[B, MB]", required, metadata)
          .Input("max_model_len", "int64", "[]", PortKind::kOptional, metadata)
          .Output("logits", "float", "[B * n, max_model_len]")
          .FlagAttr(
              "clean_logits", int64_t{1},
              "1: -inf in all columns that a row does not see; 0: anything at or past the context "
              "length")
          .Types("Q", {kFloat8E4M3FN, kUint8})
          .InferShapes(InferShapes)
          .Validate(Validate)
          .Decomposition(Decompose)
          .Variants(Variants);
  AddMqaLogitsKernels(op, MakeProblem);
  return op;
}

}  // namespace pagefuse::pagefuse_ops
