// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/pagefuse/attention/paged_attention_call.h"

#include <cmath>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/kernels/attention/paged_attention_hwy.h"
#include "pagefuse/ops/pagefuse/attention/paged_attention.h"
#include "pagefuse/ops/pagefuse/cache/cache_ports.h"

namespace pagefuse {
namespace {

float ScalarOr(const TensorArg& arg, float otherwise) {
  return arg.data != nullptr ? *arg.as<float>() : otherwise;
}

}  // namespace

absl::StatusOr<PagedAttentionProblem> MakePagedAttentionForm(const KernelArgs& args) {
  PagedAttentionProblem p;
  PF_ASSIGN_OR_RETURN(const PagedAttentionAttributes a, ParsePagedAttention(*args.node));
  p.rules = a;
  const TensorArg& query = args.input(kPagedAttentionIn["query"]);
  const TensorArg& cache = args.input(kPagedAttentionIn["key_cache"]);
  const auto floats = [&](int i) { return args.input(i).as<const float>(); };
  const auto ints = [&](int i) { return args.input(i).as<const int32_t>(); };
  p.compute_type = a.ComputeType(query.dtype);
  PF_ASSIGN_OR_RETURN(p.format, a.format.StoredAs(cache.dtype));
  const TensorArg& output_scale = args.input(kPagedAttentionIn["output_scale"]);
  p.output_type = a.OutputType(query.dtype, output_scale.present());
  p.num_tokens = query.dim(0);
  p.num_heads = query.dim(1);
  p.head_size = query.dim(2);
  p.num_blocks = cache.dim(0);
  p.block_size = cache.dim(1);
  p.num_kv_heads = cache.dim(2);
  p.num_sequences = args.input(kPagedAttentionIn["seq_lens"]).dim(0);
  p.table_columns = args.input(kPagedAttentionIn["block_table"]).dim(1);
  const TensorArg& ranges = args.input(kPagedAttentionIn["mm_prefix_range"]);
  p.num_ranges = ranges.present() ? ranges.dim(1) : 0;
  const TensorArg& qq_bias = args.input(kPagedAttentionIn["qq_bias"]);
  p.qq_size = qq_bias.present() ? qq_bias.dim(0) : 0;
  p.scale = a.scale.value_or(1.0f / std::sqrt(static_cast<float>(p.head_size)));

  p.query = query.data;
  p.keys =
      RowsOfCache(p.format, p.head_size, cache, args.input(kPagedAttentionIn["k_scale_cache"]));
  p.values = RowsOfCache(p.format, p.head_size, args.input(kPagedAttentionIn["value_cache"]),
                         args.input(kPagedAttentionIn["v_scale_cache"]));
  p.query_start_loc = ints(kPagedAttentionIn["query_start_loc"]);
  p.seq_lens = ints(kPagedAttentionIn["seq_lens"]);
  p.block_table = ints(kPagedAttentionIn["block_table"]);
  p.k_scale = p.v_scale = p.q_scale = 1;
  p.sink_type = args.input(kPagedAttentionIn["head_sink"]).dtype;
  p.head_sink = args.input(kPagedAttentionIn["head_sink"]).data;
  p.alibi_slopes = floats(kPagedAttentionIn["alibi_slopes"]);
  p.qq_bias = floats(kPagedAttentionIn["qq_bias"]);
  p.ranges = ranges.as<const int32_t>();
  p.causal_flags = args.input(kPagedAttentionIn["causal_flags"]).as<const bool>();
  p.output_scale = floats(kPagedAttentionIn["output_scale"]);
  p.rht_signs = floats(kPagedAttentionIn["rht_signs"]);
  p.output = args.output(0).data;
  p.lse = args.output(1).as<float>();
  return p;
}

absl::StatusOr<PagedAttentionProblem> MakePagedAttentionProblem(const KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(PagedAttentionProblem p, MakePagedAttentionForm(args));
  p.k_scale = ScalarOr(args.input(kPagedAttentionIn["k_scale"]), 1);
  p.v_scale = ScalarOr(args.input(kPagedAttentionIn["v_scale"]), 1);
  p.q_scale = ScalarOr(args.input(kPagedAttentionIn["q_scale"]), 1);
  return p;
}

absl::Status PagedAttentionReference(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const PagedAttentionProblem problem, MakePagedAttentionProblem(args));
  return RunPagedAttentionReference(problem);
}

absl::Status PagedAttentionHwySupports(const KernelQuery& query) {
  const Node& node = *query.node;
  PF_ASSIGN_OR_RETURN(const PagedAttentionAttributes a, ParsePagedAttention(node));
  if (!a.format.is_plain() || node.input(kPaKeyCache) == nullptr) return absl::OkStatus();
  const DataType type = a.ComputeType(node.input(kPaQuery)->dtype());
  const DataType cache = node.input(kPaKeyCache)->dtype();
  // Elements are used as floats. That is the cast to the type of query where it changes nothing.
  if (type == cache || type == DataType::kFloat || cache == DataType::kFloat8E4M3FN) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(StrCat("a cache of ", DataTypeName(cache),
                                              " would have to be rounded to ", DataTypeName(type)));
}

absl::Status PagedAttentionHwy(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const PagedAttentionProblem problem, MakePagedAttentionProblem(args));
  RunPagedAttention(problem, *args.scratch);
  return absl::OkStatus();
}

}  // namespace pagefuse
