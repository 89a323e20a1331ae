// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/pagefuse/latent/sparse_mla_attention.h"

#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/schema/shape_checks.h"

namespace pagefuse {
namespace {

constexpr std::pair<LatentFormat, std::string_view> kFormats[] = {
    {LatentFormat::kPlain, "bf16"},
    {LatentFormat::kFp8DsMla, "fp8_ds_mla"},
    {LatentFormat::kFp8Ue8m0, "fp8_ue8m0"},
};

absl::StatusOr<LatentFormat> ReadFormat(const Node& node) {
  PF_ASSIGN_OR_RETURN(const std::string text, node.StringAttribute("format", "bf16"));
  for (const auto& [format, name] : kFormats) {
    if (text == name) return format;
  }
  return NodeError(node, StrCat("there is no format \"", text, "\""));
}

// The size by name of a row of codes; `plain` for rows of numbers.
SizeDef::ComputeFn OfCodes(int64_t plain, int64_t (*size)(const SparseMlaAttributes&, int64_t)) {
  return [plain, size](const ShapeContext& c) -> absl::StatusOr<Dim> {
    PF_ASSIGN_OR_RETURN(const SparseMlaAttributes a, ReadSparseMla(c.node()));
    if (a.format == LatentFormat::kPlain) return Dim(plain);
    const std::optional<int64_t> row = c.size("D").constant();
    return row ? Dim(size(a, *row)) : Dim::Unknown();
  };
}

// A block has at least one token: without indices, positions are looked up in blocks.
absl::Status CheckBlocks(ShapeContext& c) {
  constexpr int kCache = kSparseMlaIn["kv_cache"];
  const Shape* cache = c.input_shape(kCache);
  if (cache == nullptr || c.has_input(kSparseMlaIn["indices"])) return absl::OkStatus();
  for (int axis = 1; axis + 1 < cache->rank(); ++axis) {
    if ((*cache)[axis] != Dim(0)) continue;
    return c.InputError(kCache,
                        StrCat("expected blocks of at least one token, got ", cache->ToString()));
  }
  return absl::OkStatus();
}

}  // namespace

int64_t SparseMlaAttributes::group_size() const {
  if (quant_group_size > 0) return quant_group_size;
  return format == LatentFormat::kFp8Ue8m0 ? Fp8Ue8m0Row().group : Fp8DsMlaRow().group;
}

GroupedRowFormat SparseMlaAttributes::grouped(int64_t size) const {
  const int64_t coded = size - rope_size;
  return format == LatentFormat::kFp8Ue8m0 ? Fp8Ue8m0Row(coded, rope_size, group_size())
                                           : Fp8DsMlaRow(coded, rope_size, group_size());
}

absl::StatusOr<SparseMlaAttributes> ReadSparseMla(const Node& node) {
  SparseMlaAttributes a;
  PF_ASSIGN_OR_RETURN(a.format, ReadFormat(node));
  PF_ASSIGN_OR_RETURN(a.rope_size, node.IntAttribute("rope_size", 64));
  PF_ASSIGN_OR_RETURN(a.quant_group_size, node.IntAttribute("quant_group_size", 0));
  PF_ASSIGN_OR_RETURN(a.scale, node.FloatAttribute("scale", 1));
  PF_ASSIGN_OR_RETURN(a.head_dim_v, node.IntAttribute("head_dim_v", 512));
  PF_ASSIGN_OR_RETURN(a.block_size, node.IntAttribute("block_size", 64));
  PF_ASSIGN_OR_RETURN(a.extra_block_size, node.IntAttribute("extra_block_size", 64));
  PF_ASSIGN_OR_RETURN(const int64_t is_causal, node.IntAttribute("is_causal", 1));
  a.is_causal = is_causal != 0;
  return a;
}

namespace pagefuse_ops {

OpDef SparseMlaAttentionDef() {
  using enum DataType;
  return OpDef("pagefuse", "SparseMlaAttention", /*since=*/1)
      .Doc(
          "Multi-query attention over rows of a latent cache that are keys and values: listed rows "
          "of one or two caches, or without indices all rows of the token's sequence. A token "
          "without rows has output 0 and lse +inf.")
      .Inputs(kSparseMlaIn)
      .Outputs(kSparseMlaOut)
      .Attr("format", std::string("bf16"))
      .OneOf({"bf16", "fp8_ds_mla", "fp8_ue8m0"})
      .RequiredAttr("scale", "factor of the scores")
      .Attr("head_dim_v", int64_t{512}, "leading elements of a row that are its value")
      .AtLeast(1)
      .Attr("rope_size", int64_t{64}, "last elements of a row, without codes, in uint8 formats")
      .AtLeast(0)
      .Attr("quant_group_size", int64_t{0},
            "elements with one scale, in uint8 formats; 0: 64 in fp8_ue8m0, 128 in fp8_ds_mla")
      .AtLeast(0)
      .Attr("block_size", int64_t{64}, "tokens a block of kv_cache, fp8_ue8m0 only")
      .AtLeast(1)
      .Attr("extra_block_size", int64_t{64}, "tokens a block of extra_kv_cache, fp8_ue8m0 only")
      .AtLeast(1)
      .FlagAttr("is_causal", int64_t{1}, "without indices: a token sees itself and those before it")
      .Types("TQ", {kFloat, kFloat16, kBfloat16})
      .Types("TC", {kFloat, kFloat16, kBfloat16})
      .Let("tail", "0 if format = bf16, else rope_size")
      .Let("group", "elements with one scale; 1 if format = bf16",
           OfCodes(1, [](const SparseMlaAttributes& a, int64_t) { return a.group_size(); }))
      .Let("row_bytes", "bytes of a row of D elements in the format; 0 if format = bf16",
           OfCodes(0, [](const SparseMlaAttributes& a,
                         int64_t size) { return a.grouped(size).TokenBytes(); }))
      .InferShapes(CheckBlocks)
      .Validate(ValidateSparseMla)
      .Decomposition(DecomposeSparseMla)
      .AddKernel({.name = "reference", .run = SparseMlaReference})
      .AddKernel({.name = "hwy", .priority = 10, .run = SparseMlaHwy});
}

}  // namespace pagefuse_ops
}  // namespace pagefuse
