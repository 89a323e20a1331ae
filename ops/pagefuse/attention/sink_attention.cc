// SPDX-License-Identifier: Apache-2.0
// SinkAttention: attention under a mask that is added to the scores, with a score of each head that
// takes probability and has no value (gpt-oss; DeepSeek-V4; arXiv 2309.17453).
#include <string>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/kernels/attention/dense_attention.h"
#include "pagefuse/ops/pagefuse/body_writer.h"
#include "pagefuse/ops/pagefuse/run_call.h"
#include "pagefuse/ops/schema/op_def.h"

namespace pagefuse::pagefuse_ops {
namespace {

constexpr Ports kIn({
    {"query", "T", "[B, H, S, D]"},
    {"key", "T", "[B, G, K, D], H % G = 0"},
    {"value", "T", "[B, G, K, V]"},
    {"mask", "T", "[MB, MH, MS, MK]: of [B, H, S, K], or of length 1 where it repeats"},
    {"sinks", "T", "[H]"},
});
constexpr Ports kOut({{"y", "T", "[B, H, S, V]"}});

constexpr int kQuery = kIn["query"], kKey = kIn["key"], kMask = kIn["mask"];

// A mask repeats along axes of length 1, and fits the scores along the others.
absl::Status CheckMask(ShapeContext& c) {
  const Shape* mask = c.input_shape(kMask);
  const Shape* query = c.input_shape(kQuery);
  const Shape* key = c.input_shape(kKey);
  if (!mask || !query || !key) return absl::OkStatus();
  const Dim scores[] = {(*query)[0], (*query)[1], (*query)[2], (*key)[2]};
  for (int axis = 0; axis < 4; ++axis) {
    const auto length = (*mask)[axis].constant(), wanted = scores[axis].constant();
    if (!length || !wanted || *length == 1 || *length == *wanted) continue;
    return c.InputError(
        kMask, StrCat("expected 1 or ", *wanted, " along axis ", axis, ", got ", mask->ToString()));
  }
  return absl::OkStatus();
}

onnx_ops::HeadLayout LayoutOf(const TensorArg& tensor) {
  const int64_t row = tensor.dim(3), head = tensor.dim(2) * row;
  return {tensor.dim(1) * head, head, row};
}

absl::StatusOr<onnx_ops::DenseAttention> CallOf(const KernelArgs& args) {
  const TensorArg& q = args.input(kQuery);
  const TensorArg& k = args.input(kKey);
  const TensorArg& v = args.input(kIn["value"]);
  const TensorArg& mask = args.input(kMask);
  onnx_ops::DenseAttention call;
  PF_ASSIGN_OR_RETURN(call.scale, args.node->FloatAttribute("scale", 1));
  call.q_heads = q.dim(1);
  call.kv_heads = k.dim(1);
  call.qk_size = q.dim(3);
  call.v_size = v.dim(3);
  call.causal = false;
  call.sequences.assign(static_cast<size_t>(q.dim(0)),
                        {.queries = q.dim(2), .first_position = 0, .keys = k.dim(2)});
  call.q = q.as<const float>();
  call.k = k.as<const float>();
  call.v = v.as<const float>();
  call.y = args.output(0).as<float>();
  call.q_layout = LayoutOf(q);
  call.k_layout = LayoutOf(k);
  call.v_layout = LayoutOf(v);
  call.y_layout = LayoutOf(args.output(0));
  const float* sinks = args.input(kIn["sinks"]).as<const float>();
  call.sinks.assign(sinks, sinks + q.dim(1));
  call.bias.data = mask.as<const float>();
  int64_t stride = 1;
  for (int axis = 3; axis >= 0; --axis) {
    call.bias.strides[axis] = mask.dim(axis) == 1 ? 0 : stride;
    stride *= mask.dim(axis);
  }
  return call;
}

// Heads that share keys stand beside each other in a group.
std::string Body(bool grouped) {
  const char* products = grouped ? R"(
  heads = Shape <start = 1, end = 2> (query)
  groups = Shape <start = 1, end = 2> (key)
  shared = Div (heads, groups)
  length = Shape <start = 2, end = 3> (query)
  rest = Constant <value_ints: ints = [-1]> ()
  by_group = Concat <axis = 0> (batch, groups, shared, length, rest)
  by_head = Concat <axis = 0> (batch, heads, length, rest)
  two = Constant <value_ints: ints = [2]> ()
  q = Reshape <allowzero = 1> (query, by_group)
  k = Unsqueeze (key, two)
  v = Unsqueeze (value, two)
  columns = Transpose <perm = [0, 1, 2, 4, 3]> (k)
  group_scores = MatMul (q, columns)
  products = Reshape <allowzero = 1> (group_scores, by_head)
)"
                                 : R"(
  columns = Transpose <perm = [0, 1, 3, 2]> (key)
  products = MatMul (query, columns)
)";
  const char* sums = grouped ? R"(  group_kept = Reshape <allowzero = 1> (kept, by_group)
  group_rows = MatMul (group_kept, v)
  y = Reshape <allowzero = 1> (group_rows, by_head)
)"
                             : "  y = MatMul (kept, value)\n";
  return StrCat(R"(SinkAttention (query, key, value, mask, sinks) => (y) {
  batch = Shape <start = 0, end = 1> (query)
  scale = Constant <value_float: float = @scale> ())",
                products, R"(  scaled = Mul (products, scale)
  scores = Add (scaled, mask)
  by_column = Constant <value_ints: ints = [1, -1, 1, 1]> ()
  column = Reshape (sinks, by_column)
  one = Constant <value_ints: ints = [1]> ()
  queries = Shape <start = 2, end = 3> (query)
  dims = Concat <axis = 0> (batch, one, queries, one)
  beside = Expand (column, dims)
  joined = Concat <axis = -1> (scores, beside)
  probabilities = Softmax <axis = -1> (joined)
  zero = Constant <value_ints: ints = [0]> ()
  last = Constant <value_ints: ints = [-1]> ()
  kept = Slice (probabilities, zero, last, last)
)",
                sums, "}");
}

absl::StatusOr<std::string> Decompose(const Node& node) {
  PF_ASSIGN_OR_RETURN(const int64_t heads, NumberOf(node, kQuery, 1));
  PF_ASSIGN_OR_RETURN(const int64_t groups, NumberOf(node, kKey, 1));
  return Body(heads != groups);
}

}  // namespace

OpDef SinkAttentionDef() {
  return OpDef("pagefuse", "SinkAttention", /*since=*/1)
      .Doc(
          "softmax (scale * query . key + mask, sinks beside it) over the keys and the sink, times "
          "the values: the sink of a head takes probability and has no value. A query that sees no "
          "key gives 0.")
      .Inputs(kIn)
      .Outputs(kOut)
      .RequiredAttr("scale", "factor of the scores")
      .Types("T", {DataType::kFloat})
      .InferShapes(CheckMask)
      .Decomposition(Decompose)
      .AddKernel({.name = "reference", .run = RunCall<CallOf, onnx_ops::DenseAttentionReference>})
      .AddKernel(
          {.name = "hwy", .priority = 10, .run = RunCall<CallOf, onnx_ops::DenseAttentionHwy>});
}

}  // namespace pagefuse::pagefuse_ops
