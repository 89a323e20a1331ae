// SPDX-License-Identifier: Apache-2.0
// PagedAttention in standard ONNX ops, as text: one function for each choice of attributes and
// optional ports.
#include <string>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/pagefuse/attention/paged_attention.h"
#include "pagefuse/ops/pagefuse/attention/paged_attention_body.h"

namespace pagefuse {

absl::StatusOr<std::string> DecomposePagedAttention(const Node& node) {
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
  return PagedAttentionBody(o).Text();
}

}  // namespace pagefuse
