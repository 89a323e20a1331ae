// SPDX-License-Identifier: Apache-2.0
// SparseMlaAttention in standard ONNX ops, as text: one function for each choice of attributes and
// optional ports.
#include <string>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/pagefuse/latent/sparse_mla_attention.h"
#include "pagefuse/ops/pagefuse/latent/sparse_mla_attention_body.h"

namespace pagefuse {

absl::StatusOr<std::string> DecomposeSparseMla(const Node& node) {
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
  return SparseMlaBody(o).Text();
}

}  // namespace pagefuse
