#include "pagefuse/ops/pagefuse/latent/sparse_mla_attention.h"

#include <string_view>
#include <utility>

#include "pagefuse/ir/status_macros.h"
#include "pagefuse/ir/str_cat.h"
#include "pagefuse/ops/builtin_ops.h"

namespace pagefuse {
namespace {

constexpr std::pair<LatentFormat, std::string_view> kFormats[] = {
    {LatentFormat::kPlain, "bf16"},
    {LatentFormat::kFp8DsMla, "fp8_ds_mla"},
    {LatentFormat::kFp8Ue8m0, "fp8_ue8m0"},
};

absl::Status NodeAttributeError(const Node& node, std::string_view attribute,
                                std::string_view what) {
  return absl::InvalidArgumentError(
      StrCat(node.Description(), ": attribute \"", attribute, "\": ", what));
}

absl::StatusOr<LatentFormat> ParseFormat(const Node& node) {
  PF_ASSIGN_OR_RETURN(const std::string text, node.StringAttribute("format", "bf16"));
  for (const auto& [format, name] : kFormats) {
    if (text == name) return format;
  }
  return NodeAttributeError(
      node, "format", StrCat("expected one of bf16, fp8_ds_mla, fp8_ue8m0, got \"", text, "\""));
}

absl::StatusOr<int64_t> PositiveAttribute(const Node& node, std::string_view name,
                                          int64_t otherwise) {
  PF_ASSIGN_OR_RETURN(const int64_t value, node.IntAttribute(name, otherwise));
  if (value >= 1) return value;
  return NodeAttributeError(node, name, StrCat("expected 1 or more, got ", value));
}

}  // namespace

std::string_view LatentFormatName(LatentFormat format) {
  return kFormats[static_cast<int>(format)].second;
}

absl::StatusOr<SparseMlaAttributes> ParseSparseMla(const Node& node) {
  SparseMlaAttributes a;
  PF_ASSIGN_OR_RETURN(a.format, ParseFormat(node));
  PF_ASSIGN_OR_RETURN(a.scale, node.FloatAttribute("scale", 1));
  PF_ASSIGN_OR_RETURN(a.head_dim_v, PositiveAttribute(node, "head_dim_v", 512));
  PF_ASSIGN_OR_RETURN(a.block_size, PositiveAttribute(node, "block_size", 64));
  PF_ASSIGN_OR_RETURN(a.extra_block_size, PositiveAttribute(node, "extra_block_size", 64));
  PF_ASSIGN_OR_RETURN(const int64_t is_causal, node.IntAttribute("is_causal", 1));
  a.is_causal = is_causal != 0;
  return a;
}

namespace pagefuse_ops {

OpDef SparseMlaAttentionDef() {
  using enum DataType;
  constexpr PortKind kOptional = PortKind::kOptional;
  constexpr PortRole kMetadata = PortRole::kMetadata;
  return OpDef("pagefuse", "SparseMlaAttention", /*since=*/1)
      .Doc(
          "Multi-query attention over rows of a latent cache that are keys and values: listed rows "
          "of one or two caches, or without indices all rows of the token's sequence. A token "
          "without rows has output 0 and lse +inf.")
      .Input("q", "TQ", "[T, H, D]")
      .Input("kv_cache", "TC", "[..., D], [..., 656] or [NB, S]")
      .Input("indices", "int32", "[T, K]", kOptional, kMetadata)
      .Input("topk_lens", "int32", "[T]", kOptional, kMetadata)
      .Input("attn_sink", "float", "[H]", kOptional)
      .Input("extra_kv_cache", "TC", "as kv_cache", kOptional)
      .Input("extra_indices", "int32", "[T, K2]", kOptional, kMetadata)
      .Input("extra_topk_lens", "int32", "[T]", kOptional, kMetadata)
      .Input("block_table", "int32", "[B, M]", kOptional, kMetadata)
      .Input("seq_lens", "int32", "[B]", kOptional, kMetadata)
      .Input("query_start_loc", "int32", "[B + 1]", kOptional, kMetadata)
      .Output("out", "TQ", "[T, H, head_dim_v]")
      .Output("lse", "float", "[T, H]", kOptional)
      .Attr("format", std::string("bf16"), "\"bf16\", \"fp8_ds_mla\" or \"fp8_ue8m0\"")
      .RequiredAttr("scale", "factor of the scores")
      .Attr("head_dim_v", int64_t{512}, "leading elements of a row that are its value")
      .Attr("block_size", int64_t{64}, "tokens a block of kv_cache, fp8_ue8m0 only")
      .Attr("extra_block_size", int64_t{64}, "tokens a block of extra_kv_cache, fp8_ue8m0 only")
      .FlagAttr("is_causal", int64_t{1}, "without indices: a token sees itself and those before it")
      .Types("TQ", {kFloat, kFloat16, kBfloat16})
      .Types("TC", {kFloat, kFloat16, kBfloat16, kUint8})
      .InferShapes(InferSparseMla)
      .Validate(ValidateSparseMla)
      .Decomposition(DecomposeSparseMla)
      .Variants(SparseMlaVariants)
      .AddKernel({.name = "reference", .run = SparseMlaReference})
      .AddKernel({.name = "hwy", .priority = 10, .run = SparseMlaHwy});
}

}  // namespace pagefuse_ops
}  // namespace pagefuse
