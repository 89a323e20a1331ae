// SPDX-License-Identifier: Apache-2.0
// MqaLogits: the index score of every key for every query, dense keys. Equals vLLM's
// fp8_mqa_logits_triton (DeepSeek-V3.2 and V4).
#include "pagefuse/ops/pagefuse/indexer/mqa_logits.h"

#include <algorithm>
#include <string>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/pagefuse/indexer/column_ranges.h"

namespace pagefuse::pagefuse_ops {
namespace {

constexpr Ports kIn({
    {"q", "Q", "[M, H, D]"},
    {"k", "K", "[N, D]"},
    {"k_scale", "float", "[N] or [N, 1]"},
    {"weights", "float", "[M, H]"},
    PortSpec("ks", "int32", "[M]").Metadata(),
    PortSpec("ke", "int32", "[M]").Metadata(),
});
constexpr Ports kOut({{"logits", "float", "[M, N]"}});

absl::Status Validate(const KernelArgs& args) {
  return CheckColumnRanges(args, {.begins = kIn["ks"], .ends = kIn["ke"]},
                           args.input(kIn["k"]).dim(0));
}

// The keys are one block.
constexpr int32_t kOnlyBlock = 0;

absl::StatusOr<MqaLogitsProblem> MakeProblem(const KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const int64_t clean, args.node->IntAttribute("clean_logits", 1));
  const TensorArg& q = args.input(kIn["q"]);
  MqaLogitsProblem problem;
  problem.q = q.as<const uint8_t>();
  problem.weights = args.input(kIn["weights"]).as<const float>();
  problem.rows = q.dim(0);
  problem.heads = q.dim(1);
  problem.head_size = q.dim(2);
  problem.width = args.input(kIn["k"]).dim(0);
  problem.keys.data = args.input(kIn["k"]).as<uint8_t>();
  problem.keys.scales = args.input(kIn["k_scale"]).as<uint8_t>();
  problem.keys.num_blocks = 1;
  problem.keys.block_size = std::max<int64_t>(problem.width, 1);
  problem.keys.data_strides.row = problem.head_size;
  problem.keys.scale_strides.row = sizeof(float);
  problem.sequences.assign(problem.rows, 0);
  problem.block_table = &kOnlyBlock;
  problem.table_columns = 1;
  problem.logits = args.output(0).as<float>();
  for (int64_t m = 0; m < problem.rows; ++m) {
    problem.ranges.push_back({args.input(kIn["ks"]).as<const int32_t>()[m],
                              args.input(kIn["ke"]).as<const int32_t>()[m]});
  }
  problem.filled.assign(problem.rows, clean != 0 ? problem.width : 0);
  return problem;
}

constexpr char kProductNodes[] = R"(  keys_across = Transpose <perm = [1, 0]> (keys)
  dots = MatMul (queries, keys_across)
)";
constexpr char kSumNodes[] = R"(  rectified = Relu (scaled)
  l_m1 = Constant <value_ints: ints = [-1]> ()
  weight_column = Unsqueeze (weights, l_m1)
  weighted = Mul (rectified, weight_column)
  sums = ReduceSum <keepdims = 0> (weighted, l_1)
  i_0 = Constant <value_int: int = 0> ()
  i_1 = Constant <value_int: int = 1> ()
  key_count = Shape <start = 0, end = 1> (k)
  key_limit = Squeeze (key_count)
  key = Range (i_0, key_limit, i_1)
  begin = Cast <to = 7> (ks)
  begin_column = Unsqueeze (begin, l_1)
  after_begin = GreaterOrEqual (key, begin_column)
  end = Cast <to = 7> (ke)
  end_column = Unsqueeze (end, l_1)
  before_end = Less (key, end_column)
  inside = And (after_begin, before_end)
  f_0 = Constant <value_float: float = 0.0> ()
  neg_inf = Log (f_0)
  logits = Where (inside, sums, neg_inf)
}
)";

// float `to` from codes `from`, which may be uint8.
std::string ValueNodes(const std::string& from, const std::string& to, bool is_uint8) {
  if (!is_uint8) return StrCat("  ", to, " = Cast <to = 1> (", from, ")\n");
  return StrCat("  ", to, "_codes = BitCast <to = 17> (", from, ")\n  ", to, " = Cast <to = 1> (",
                to, "_codes)\n");
}

// With clean_logits 0 the masked logits are one of the allowed results.
absl::StatusOr<std::string> Decompose(const Node& node) {
  const std::optional<Shape>& scale = node.input(kIn["k_scale"])->shape();
  const auto is_uint8 = [&node](int port) { return node.input(port)->dtype() == DataType::kUint8; };
  return StrCat("MqaLogits (q, k, k_scale, weights, ks, ke) => (logits) {\n",
                "  l_1 = Constant <value_ints: ints = [1]> ()\n",
                ValueNodes("q", "queries", is_uint8(kIn["q"])),
                ValueNodes("k", "keys", is_uint8(kIn["k"])), kProductNodes,
                scale && scale->rank() == 2
                    ? "  scale = Squeeze (k_scale, l_1)\n  scaled = Mul (dots, scale)\n"
                    : "  scaled = Mul (dots, k_scale)\n",
                kSumNodes);
}

absl::Status TilesSupport(const KernelQuery& query) {
  const DataType type = query.node->input(kIn["q"])->dtype();
  if (type != DataType::kFloat8E4M3FN && type != DataType::kUint8) {
    return absl::FailedPreconditionError("queries are no float8e4m3fn codes");
  }
  if (query.node->StringAttribute("format", "fp8").value_or("") != "fp8") {
    return absl::FailedPreconditionError("keys are no float8e4m3fn codes");
  }
  return MqaLogitsTilesSupported();
}

}  // namespace

void AddMqaKernels(OpDef& op, const MqaRun& run) {
  const auto by = [&run](MqaLogitsFn score) {
    return [run, score](KernelArgs& args) { return run(args, score); };
  };
  op.AddKernel({.name = "reference", .run = by(nullptr)})
      .AddKernel({.name = "hwy", .priority = 10, .run = by(MqaLogitsHwy)})
      .AddKernel(
          {.name = "tiles", .priority = 20, .supports = TilesSupport, .run = by(MqaLogitsTiles)});
}

void AddMqaLogitsKernels(OpDef& op, MqaProblemOf make_problem) {
  AddMqaKernels(op, [make_problem](KernelArgs& args, MqaLogitsFn score) -> absl::Status {
    PF_ASSIGN_OR_RETURN(const MqaLogitsProblem problem, make_problem(args));
    if (score) {
      score(problem, args.scratch);
    } else {
      MqaLogitsReference(problem);
    }
    return absl::OkStatus();
  });
}

OpDef MqaLogitsDef() {
  using enum DataType;
  OpDef op =
      OpDef("pagefuse", "MqaLogits", 1)
          .Doc(
              "Index score of every key for every query: logits[m, n] = sum over h of weights[m, "
              "h] * max(0, (q[m, h] . k[n]) * k_scale[n]) for ks[m] <= n < ke[m]. q and k hold "
              "e4m3fn codes; uint8 stands for float8e4m3fn.")
          .Inputs(kIn)
          .Outputs(kOut)
          .FlagAttr("clean_logits", int64_t{1}, "1: -inf outside the range; 0: anything")
          .Types("Q", {kFloat8E4M3FN, kUint8})
          .Types("K", {kFloat8E4M3FN, kUint8})
          .Validate(Validate)
          .Decomposition(Decompose);
  AddMqaLogitsKernels(op, MakeProblem);
  return op;
}

}  // namespace pagefuse::pagefuse_ops
