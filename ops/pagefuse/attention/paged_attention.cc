// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/pagefuse/attention/paged_attention.h"

#include <string_view>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/pagefuse/attention/paged_attention_call.h"
#include "pagefuse/ops/pagefuse/cache/cache_ports.h"
#include "pagefuse/ops/schema/shape_checks.h"

namespace pagefuse {
namespace {

absl::Status ParseWindow(const Node& node, PagedAttentionAttributes& a) {
  PF_ASSIGN_OR_RETURN(a.sliding_window, node.IntAttribute("sliding_window", 0));
  if (a.sliding_window < 0) {
    return AttributeError(node, "sliding_window",
                          StrCat("expected 0 or more, got ", a.sliding_window));
  }
  PF_ASSIGN_OR_RETURN(a.chunk_lookback, node.IntAttribute("chunk_lookback", -1));
  if (a.chunk_lookback >= 0 && a.sliding_window > 0 && a.chunk_lookback >= a.sliding_window) {
    return AttributeError(
        node, "chunk_lookback",
        StrCat("expected sliding_window div (chunk_lookback + 1) to be at least 1, got ",
               a.sliding_window, " div (", a.chunk_lookback, " + 1)"));
  }
  a.sliding_window = WithinReach(a.sliding_window);
  return absl::OkStatus();
}

absl::Status ParseTypes(const Node& node, PagedAttentionAttributes& a) {
  PF_ASSIGN_OR_RETURN(a.format, ReadCacheFormat(node));
  PF_ASSIGN_OR_RETURN(const std::string query_type, node.StringAttribute("query_type", ""));
  if (!query_type.empty() && query_type != "float8e4m3fn") {
    return AttributeError(node, "query_type",
                          StrCat("expected \"\" or \"float8e4m3fn\", got \"", query_type, "\""));
  }
  a.query_is_f8_twin = !query_type.empty();
  if (node.attribute("output_dtype") == nullptr) return absl::OkStatus();
  PF_ASSIGN_OR_RETURN(const int64_t code, node.IntAttribute("output_dtype", 0));
  switch (code) {
    case static_cast<int64_t>(DataType::kFloat):
    case static_cast<int64_t>(DataType::kFloat16):
    case static_cast<int64_t>(DataType::kBfloat16):
    case static_cast<int64_t>(DataType::kFloat8E4M3FN):
    case static_cast<int64_t>(DataType::kUint8):
      a.output_dtype = static_cast<DataType>(code);
      return absl::OkStatus();
    default:
      return AttributeError(
          node, "output_dtype",
          StrCat("expected float, float16, bfloat16, float8e4m3fn or uint8, got code ", code));
  }
}

}  // namespace

absl::Status ReadNanValue(const Node& node, AttentionRules& rules) {
  rules.replaces_nan = node.attribute("nan_value") != nullptr;
  PF_ASSIGN_OR_RETURN(rules.nan_value, node.FloatAttribute("nan_value", 0));
  return absl::OkStatus();
}

DataType PagedAttentionAttributes::ComputeType(DataType query_type) const {
  return query_type == DataType::kUint8 ? DataType::kFloat8E4M3FN : query_type;
}

DataType PagedAttentionAttributes::OutputType(DataType query_type, bool has_output_scale) const {
  if (output_dtype != DataType::kUndefined) return output_dtype;
  return has_output_scale ? DataType::kFloat8E4M3FN : query_type;
}

absl::StatusOr<PagedAttentionAttributes> ParsePagedAttention(const Node& node) {
  PagedAttentionAttributes a;
  if (node.attribute("scale") != nullptr) {
    PF_ASSIGN_OR_RETURN(a.scale, node.FloatAttribute("scale", 0));
  }
  PF_ASSIGN_OR_RETURN(const int64_t is_causal, node.IntAttribute("is_causal", 1));
  a.is_causal = is_causal != 0;
  PF_RETURN_IF_ERROR(ParseWindow(node, a));
  PF_ASSIGN_OR_RETURN(a.softcap, node.FloatAttribute("softcap", 0));
  if (!(a.softcap >= 0)) {
    return AttributeError(node, "softcap", StrCat("expected 0 or more, got ", a.softcap));
  }
  PF_ASSIGN_OR_RETURN(const int64_t use_alibi_sqrt, node.IntAttribute("use_alibi_sqrt", 0));
  a.use_alibi_sqrt = use_alibi_sqrt != 0;
  PF_ASSIGN_OR_RETURN(const int64_t clamp, node.IntAttribute("mm_prefix_clamp_window", 0));
  a.mm_prefix_clamp_window = clamp != 0;
  PF_RETURN_IF_ERROR(ReadNanValue(node, a));
  PF_RETURN_IF_ERROR(ParseTypes(node, a));
  return a;
}

namespace pagefuse_ops {
namespace {

OpDef& AddAttributes(OpDef& op) {
  op.Attr("scale", std::monostate(), "factor of the scores; 1/sqrt(D) if absent")
      .FlagAttr("is_causal", int64_t{1}, "a token sees itself and the tokens before it")
      .ReachAttr(
          "sliding_window", 0,
          "W > 0: number of visible keys, the token's own included; not causal: W - 1 to each side")
      .Attr("softcap", 0.0f, "c > 0: scores become c * tanh(score / c)")
      .Attr("chunk_lookback", int64_t{-1},
            "c >= 0: aligned chunks of W div (c + 1) tokens, the own one and c before it; "
            "replaces the window")
      .FlagAttr("use_alibi_sqrt", int64_t{0},
                "bias -slope * sqrt(distance) instead of the linear one")
      .Attr("kv_quant_mode", std::string("none"), KvQuantModeNames())
      .Attr("output_dtype", std::monostate(), "ONNX code; the type of query if absent")
      .Attr("query_type", std::string(), "\"float8e4m3fn\" for an f8 query given as uint8")
      .Attr("num_kv_splits_hint", int64_t{0}, "performance only")
      .Attr("tile_hint", int64_t{0}, "performance only")
      .FlagAttr("mm_prefix_clamp_window", int64_t{0}, "the window cuts image ranges too")
      .Attr("nan_value", std::monostate(), kNanValueDoc);
  return op;
}

Kernel MakeKernel(std::string_view name, int priority, absl::Status (*run)(KernelArgs&)) {
  Kernel kernel;
  kernel.name = name;
  kernel.priority = priority;
  kernel.run = run;
  return kernel;
}

Kernel MakeHwyKernel() {
  Kernel kernel = MakeKernel("hwy", 10, PagedAttentionHwy);
  kernel.supports = PagedAttentionHwySupports;
  return kernel;
}

}  // namespace

OpDef PagedAttentionDef() {
  using enum DataType;
  OpDef op("pagefuse", "PagedAttention", /*since=*/1);
  op.Doc("Attention of packed query tokens over their sequences' paged keys and values.");
  op.Inputs(kPagedAttentionIn)
      .Outputs(kPagedAttentionOut)
      .Types("TQ", {kFloat, kFloat16, kBfloat16, kFloat8E4M3FN, kUint8})
      .Types("TC", {kFloat, kFloat16, kBfloat16, kFloat8E4M3FN, kInt8, kUint8})
      .Types("TS", {kFloat, kFloat16, kBfloat16})
      .Types("TO", {kFloat, kFloat16, kBfloat16, kFloat8E4M3FN, kUint8});
  return AddAttributes(op)
      .Let("row", "stored elements of a row: D, or D/2 bytes of int4", StoredSize("D", kPaQuery))
      .InferShapes(InferPagedAttention)
      .Validate(ValidatePagedAttention)
      .Decomposition(DecomposePagedAttention)
      .AddKernel(MakeKernel("reference", 0, PagedAttentionReference))
      .AddKernel(MakeHwyKernel());
}

}  // namespace pagefuse_ops
}  // namespace pagefuse
