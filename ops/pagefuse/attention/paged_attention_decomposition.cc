// PagedAttention in standard ONNX ops, as text: one function for each choice of attributes and
// optional ports.
#include <string>
#include <vector>

#include "absl/strings/str_format.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/pagefuse/attention/paged_attention.h"
#include "pagefuse/ops/pagefuse/attention/paged_attention_body.h"

namespace pagefuse {
namespace {

// Attributes written as numbers, for a node whose values are known.
PagedAttentionBody::Form SpellAttributes(const PagedAttentionAttributes& a) {
  PagedAttentionBody::Form form;
  if (a.scale) form.scale = absl::StrFormat("%.9g", *a.scale);
  form.sliding_window = StrCat(a.sliding_window);
  form.softcap = absl::StrFormat("%.9g", a.softcap);
  return form;
}

// The structures that fusion rules look for: cache format x window x soft cap x sink, causal, in one
// computation type.
struct Structure {
  CacheFormat format;  // as it is stored
  DataType type;
  bool window, softcap, sink;
};

DecompositionVariant MakeVariant(const Structure& s) {
  PagedAttentionBody::Options options;
  options.attributes.format = s.format;
  options.attributes.sliding_window = s.window ? 1 : 0;
  options.attributes.softcap = s.softcap ? 1.0f : 0.0f;
  options.attributes.scale = 1.0f;
  options.compute_type = options.query_type = options.output_type = s.type;
  options.stored_cache_type = s.format.element;
  options.has_sink = s.sink;
  options.sink_type = DataType::kFloat;
  options.form = {.scale = "@scale", .sliding_window = "@sliding_window", .softcap = "@softcap"};

  DecompositionVariant variant;
  variant.name = StrCat(s.format.name(), "_", DataTypeName(s.type), s.window ? "_window" : "",
                        s.softcap ? "_softcap" : "", s.sink ? "_sink" : "");
  variant.text = PagedAttentionBody(options).Text();
  variant.attributes = {{"kv_quant_mode", Attribute{std::string(s.format.name()), "", ""}},
                        {"is_causal", Attribute{int64_t{1}, "", ""}}};
  return variant;
}

}  // namespace

absl::StatusOr<DecompositionVariant> DecomposePagedAttention(const Node& node) {
  PF_ASSIGN_OR_RETURN(const PagedAttentionAttributes attributes, ParsePagedAttention(node));
  const auto type_of = [&](int i) {
    return node.input(i) == nullptr ? DataType::kUndefined : node.input(i)->dtype();
  };
  PagedAttentionBody::Options o;
  o.attributes = attributes;
  o.query_type = type_of(kPagedAttentionIn["query"]);
  if (o.query_type == DataType::kUndefined) {
    return absl::FailedPreconditionError(
        StrCat(node.Description(), ": the type of \"query\" is not known"));
  }
  o.compute_type = attributes.ComputeType(o.query_type);
  o.stored_cache_type = type_of(kPagedAttentionIn["key_cache"]);
  PF_ASSIGN_OR_RETURN(o.attributes.format, attributes.format.StoredAs(o.stored_cache_type));
  o.has_sink = node.input(kPagedAttentionIn["head_sink"]) != nullptr;
  o.sink_type = type_of(kPagedAttentionIn["head_sink"]);
  o.has_alibi = node.input(kPagedAttentionIn["alibi_slopes"]) != nullptr;
  o.has_qq_bias = node.input(kPagedAttentionIn["qq_bias"]) != nullptr;
  o.has_ranges = node.input(kPagedAttentionIn["mm_prefix_range"]) != nullptr;
  o.has_causal_flags = node.input(kPagedAttentionIn["causal_flags"]) != nullptr;
  o.has_output_scale = node.input(kPagedAttentionIn["output_scale"]) != nullptr;
  o.output_type = attributes.OutputType(o.query_type, o.has_output_scale);
  o.has_lse = node.output(1) != nullptr;
  o.form = SpellAttributes(attributes);

  DecompositionVariant variant;
  variant.name = std::string(attributes.format.name());
  variant.text = PagedAttentionBody(o).Text();
  return variant;
}

std::vector<DecompositionVariant> PagedAttentionVariants() {
  std::vector<DecompositionVariant> variants;
  for (DataType type : {DataType::kFloat, DataType::kFloat16, DataType::kBfloat16}) {
    for (const RowFormat& row : RowFormats()) {
      CacheFormat format{.mode = row.mode, .element = row.element};
      if (format.needs_signs()) continue;
      if (format.is_plain()) format.element = type;
      for (int bits = 0; bits < 8; ++bits) {
        variants.push_back(
            MakeVariant({format, type, (bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0}));
      }
    }
  }
  return variants;
}

}  // namespace pagefuse
