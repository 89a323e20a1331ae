// SPDX-License-Identifier: Apache-2.0
// MergeAttnStates: joins two attention results over disjoint key sets by their log-sum-exps. Equals
// vLLM's merge_attn_states (FlashInfer, arXiv 2501.01005, section 2.2).
#include "pagefuse/ops/kernels/attention/merge_attn_states.h"

#include <string>

#include "absl/strings/str_cat.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/pagefuse/checks.h"
#include "pagefuse/ops/pagefuse/run_call.h"
#include "pagefuse/ops/schema/op_def.h"

namespace pagefuse::pagefuse_ops {
namespace {

constexpr Ports kIn({
    {"prefix_output", "T", "[T, H, D], prefill_tokens_with_context <= T"},
    {"prefix_lse", "float", "[H, T]"},
    {"suffix_output", "T", "[T, H, D]"},
    {"suffix_lse", "float", "[H, T]"},
    PortSpec("output_scale", "float", "[] or [1]").Optional(),
});
constexpr Ports kOut({
    {"output", "float8e4m3fn if output_scale, else T", "[T, H, D]"},
    PortSpec("output_lse", "float", "[H, T]").Optional(),
});
constexpr char kContext[] = "prefill_tokens_with_context";

absl::Status Validate(const KernelArgs& args) { return CheckScale(args, kIn["output_scale"]); }

absl::StatusOr<MergeCall> MakeCall(const KernelArgs& args) {
  MergeCall call;
  const TensorArg& prefix = args.input(kIn["prefix_output"]);
  call.tokens = prefix.dim(0);
  call.heads = prefix.dim(1);
  call.head_size = prefix.dim(2);
  call.type = prefix.dtype;
  call.prefix = prefix.as<const uint8_t>();
  call.suffix = args.input(kIn["suffix_output"]).as<const uint8_t>();
  call.prefix_lse = args.input(kIn["prefix_lse"]).as<const float>();
  call.suffix_lse = args.input(kIn["suffix_lse"]).as<const float>();
  call.output_type = args.output(0).dtype;
  call.output = args.output(0).as<uint8_t>();
  call.output_lse = args.output(1).as<float>();
  PF_ASSIGN_OR_RETURN(call.context_tokens, args.node->IntAttribute(kContext, -1));
  if (call.context_tokens < 0) call.context_tokens = call.tokens;
  const TensorArg& scale = args.input(kIn["output_scale"]);
  if (scale.present()) call.inverse_scale = 1.0f / *scale.as<const float>();
  return call;
}

// What decides the nodes of the decomposition.
struct MergeBody {
  DataType type = DataType::kFloat;
  bool partial = false;    // some tokens may take the suffix
  bool to_float8 = false;  // output_scale is given
};

// From the parts as float, `po` and `so`, to `merged` and `merged_lse`.
constexpr char kMergeNodes[] = R"(  f_0 = Constant <value_float: float = 0.0> ()
  f_1 = Constant <value_float: float = 1.0> ()
  neg_inf = Log (f_0)
  prefix_infinite = IsInf <detect_negative = 0, detect_positive = 1> (prefix_lse)
  pl = Where (prefix_infinite, neg_inf, prefix_lse)
  suffix_infinite = IsInf <detect_negative = 0, detect_positive = 1> (suffix_lse)
  sl = Where (suffix_infinite, neg_inf, suffix_lse)
  largest = Max (pl, sl)
  none = IsInf (largest)
  m = Where (none, f_0, largest)
  p_shifted = Sub (pl, m)
  pe = Exp (p_shifted)
  s_shifted = Sub (sl, m)
  se = Exp (s_shifted)
  sum = Add (pe, se)
  total = Where (none, f_1, sum)
  last = Constant <value_ints: ints = [2]> ()
  pw = Div (pe, total)
  pw_rows = Transpose <perm = [1, 0]> (pw)
  pw_column = Unsqueeze (pw_rows, last)
  p_part = Mul (po, pw_column)
  sw = Div (se, total)
  sw_rows = Transpose <perm = [1, 0]> (sw)
  sw_column = Unsqueeze (sw_rows, last)
  s_part = Mul (so, sw_column)
  joined = Add (p_part, s_part)
  none_rows = Transpose <perm = [1, 0]> (none)
  none_column = Unsqueeze (none_rows, last)
  merged = Where (none_column, po, joined)
  log_total = Log (total)
  joined_lse = Add (log_total, m)
  merged_lse = Where (none, neg_inf, joined_lse)
)";

// Tokens at or past the attribute take the suffix: `chosen` and `chosen_lse`.
constexpr char kPartialNodes[] = R"(  token_count = Shape <start = 0, end = 1> (so)
  limit = Squeeze (token_count)
  i_0 = Constant <value_int: int = 0> ()
  i_1 = Constant <value_int: int = 1> ()
  tokens = Range (i_0, limit, i_1)
  context = Constant <value_int = @prefill_tokens_with_context> ()
  has_context = Less (tokens, context)
  row_axes = Constant <value_ints: ints = [1, 2]> ()
  has_context_column = Unsqueeze (has_context, row_axes)
  chosen = Where (has_context_column, merged, so)
  chosen_lse = Where (has_context, merged_lse, suffix_lse)
)";

std::string BodyText(const MergeBody& body) {
  const std::string result = body.partial ? "chosen" : "merged";
  std::string text =
      absl::StrCat("MergeAttnStates (prefix_output, prefix_lse, suffix_output, suffix_lse",
                   body.to_float8 ? ", output_scale" : "", ") => (output, output_lse) {\n");
  std::string nodes = kMergeNodes;
  if (body.partial) nodes += kPartialNodes;
  if (body.type == DataType::kFloat) {
    absl::StrAppend(&text, "  po = Identity (prefix_output)\n  so = Identity (suffix_output)\n");
  } else {
    absl::StrAppend(&text,
                    "  po = Cast <to = 1> (prefix_output)\n  so = Cast <to = 1> (suffix_output)\n");
  }
  absl::StrAppend(&text, nodes);
  if (body.to_float8) {
    absl::StrAppend(&text, "  factor = Squeeze (output_scale)\n  inverse = Reciprocal (factor)\n",
                    "  scaled = Mul (", result, ", inverse)\n",
                    "  least = Constant <value_float: float = -448.0> ()\n"
                    "  most = Constant <value_float: float = 448.0> ()\n"
                    "  clipped = Clip (scaled, least, most)\n"
                    "  output = Cast <to = 17> (clipped)\n");
  } else if (body.type == DataType::kFloat) {
    absl::StrAppend(&text, "  output = Identity (", result, ")\n");
  } else {
    absl::StrAppend(&text, "  output = Cast <to = ", static_cast<int>(body.type), "> (", result,
                    ")\n");
  }
  absl::StrAppend(&text, "  output_lse = Identity (", result, "_lse)\n}\n");
  return text;
}

absl::StatusOr<std::string> Decompose(const Node& node) {
  PF_ASSIGN_OR_RETURN(const int64_t context, node.IntAttribute(kContext, -1));
  return BodyText({.type = node.input(kIn["prefix_output"])->dtype(),
                   .partial = context >= 0,
                   .to_float8 = node.input(kIn["output_scale"]) != nullptr});
}

}  // namespace

OpDef MergeAttnStatesDef() {
  using enum DataType;
  return OpDef("pagefuse", "MergeAttnStates", 1)
      .Doc(
          "Joins two attention results over disjoint key sets by their log-sum-exps (natural log).")
      .Inputs(kIn)
      .Outputs(kOut)
      .Attr(kContext, int64_t{-1}, "tokens from here on take the suffix unchanged; -1: none")
      .AtLeast(-1)
      .Types("T", {kFloat, kFloat16, kBfloat16})
      .Validate(Validate)
      .Decomposition(Decompose)
      .AddKernel({.name = "reference", .run = RunCall<MakeCall, MergeAttnStatesPlain>})
      .AddKernel({.name = "hwy", .priority = 10, .run = RunCall<MakeCall, MergeAttnStatesHwy>});
}

}  // namespace pagefuse::pagefuse_ops
