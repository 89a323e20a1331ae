// SparseMlaAttention in standard ONNX ops, as text: one function for each choice of attributes and
// optional ports.
#include <string>
#include <vector>

#include "absl/strings/str_format.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/pagefuse/latent/sparse_mla_attention.h"
#include "pagefuse/ops/pagefuse/latent/sparse_mla_attention_body.h"

namespace pagefuse {
namespace {

// The structures that fusion rules look for.
struct Structure {
  LatentFormat format;
  DataType query;
  bool lens, sink, extra, dense;
};

DecompositionVariant MakeVariant(const Structure& s) {
  SparseMlaBody::Options o;
  o.attributes.format = s.format;
  o.row_size =
      s.format == LatentFormat::kFp8Ue8m0 ? Fp8Ue8m0Row().elements() : Fp8DsMlaRow().elements();
  o.query_type = s.query;
  o.cache_type = s.format == LatentFormat::kPlain ? s.query : DataType::kUint8;
  o.has_lens = o.has_extra_lens = s.lens;
  o.has_sink = s.sink;
  o.has_extra = s.extra;
  o.has_extra_lens = s.lens && s.extra;
  o.dense = s.dense;
  o.has_lse = false;
  o.scale = "@scale";
  o.block_size = "@block_size";
  o.extra_block_size = "@extra_block_size";

  DecompositionVariant variant;
  variant.name =
      StrCat(LatentFormatName(s.format), "_", DataTypeName(s.query), s.dense ? "_dense" : "",
             s.lens ? "_lens" : "", s.sink ? "_sink" : "", s.extra ? "_extra" : "");
  variant.text = SparseMlaBody(o).Text();
  variant.attributes = {{"format", Attribute{std::string(LatentFormatName(s.format)), "", ""}}};
  variant.attributes.emplace_back("head_dim_v", Attribute{int64_t{512}, "", ""});
  if (s.format != LatentFormat::kPlain) {
    variant.attributes.emplace_back("rope_size", Attribute{o.attributes.rope_size, "", ""});
    variant.attributes.emplace_back("quant_group_size", Attribute{int64_t{0}, "", ""});
  }
  if (s.dense) variant.attributes.emplace_back("is_causal", Attribute{int64_t{1}, "", ""});
  return variant;
}

}  // namespace

absl::StatusOr<DecompositionVariant> DecomposeSparseMla(const Node& node) {
  SparseMlaBody::Options o;
  PF_ASSIGN_OR_RETURN(o.attributes, ReadSparseMla(node));
  const auto type_of = [&](int i) {
    return node.input(i) == nullptr ? DataType::kUndefined : node.input(i)->dtype();
  };
  o.query_type = type_of(kSparseMlaIn["q"]);
  o.cache_type = type_of(kSparseMlaIn["kv_cache"]);
  if (o.query_type == DataType::kUndefined || o.cache_type == DataType::kUndefined) {
    return absl::FailedPreconditionError(
        StrCat(node.Description(), ": the types of \"q\" and \"kv_cache\" are not known"));
  }
  if (o.attributes.format != LatentFormat::kPlain) {
    PF_ASSIGN_OR_RETURN(o.row_size, pagefuse_ops::NumberOf(node, kSparseMlaIn["q"], 2));
  }
  o.has_lens = node.input(kSparseMlaIn["topk_lens"]) != nullptr;
  o.has_sink = node.input(kSparseMlaIn["attn_sink"]) != nullptr;
  o.has_extra = node.input(kSparseMlaIn["extra_kv_cache"]) != nullptr;
  o.has_extra_lens = node.input(kSparseMlaIn["extra_topk_lens"]) != nullptr;
  o.dense = node.input(kSparseMlaIn["indices"]) == nullptr;
  o.has_lse = node.output(1) != nullptr;
  o.guard = true;
  o.scale = absl::StrFormat("%.9e", o.attributes.scale);
  o.block_size = StrCat(o.attributes.block_size);
  o.extra_block_size = StrCat(o.attributes.extra_block_size);

  DecompositionVariant variant;
  variant.name = std::string(LatentFormatName(o.attributes.format));
  variant.text = SparseMlaBody(o).Text();
  return variant;
}

std::vector<DecompositionVariant> SparseMlaVariants() {
  using enum DataType;
  std::vector<DecompositionVariant> variants;
  for (LatentFormat format :
       {LatentFormat::kPlain, LatentFormat::kFp8DsMla, LatentFormat::kFp8Ue8m0}) {
    for (DataType query : {kBfloat16, kFloat16, kFloat}) {
      for (int bits = 0; bits < 8; ++bits) {
        variants.push_back(MakeVariant({.format = format,
                                        .query = query,
                                        .lens = (bits & 1) != 0,
                                        .sink = (bits & 2) != 0,
                                        .extra = (bits & 4) != 0,
                                        .dense = false}));
      }
      for (bool sink : {false, true}) {
        variants.push_back(MakeVariant({.format = format,
                                        .query = query,
                                        .lens = false,
                                        .sink = sink,
                                        .extra = false,
                                        .dense = true}));
      }
    }
  }
  return variants;
}

}  // namespace pagefuse
