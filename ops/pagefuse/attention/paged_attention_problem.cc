#include "pagefuse/ops/pagefuse/attention/paged_attention_problem.h"

#include <cmath>

#include "pagefuse/ir/status_macros.h"

namespace pagefuse {
namespace {

float ScalarOr(const TensorArg& arg, float otherwise) {
  return arg.present() ? *arg.as<float>() : otherwise;
}

}  // namespace

KeyInterval PagedAttentionProblem::WindowAt(int64_t b, int64_t p) const {
  const int64_t length = this->length(b);
  const int64_t window = attributes.sliding_window;
  if (const int64_t chunk = attributes.chunk_size(); chunk > 0) {
    const int64_t own = p < 0 ? 0 : p / chunk;
    return {std::max<int64_t>(0, own - attributes.chunk_lookback) * chunk, length};
  }
  if (window == 0) return {0, length};
  return {std::max<int64_t>(0, p - window + 1),
          is_causal(b) ? length : std::min(length, p + window)};
}

KeyInterval PagedAttentionProblem::BaseAt(int64_t b, int64_t p) const {
  KeyInterval interval = WindowAt(b, p);
  if (is_causal(b)) interval.end = std::min(interval.end, p + 1);
  return interval;
}

KeyInterval PagedAttentionProblem::RangeAt(int64_t b, int64_t p, int64_t r) const {
  const int64_t first = ranges[(b * num_ranges + r) * 2];
  const int64_t last = ranges[(b * num_ranges + r) * 2 + 1];
  if (first >= last || p < first || p > last) return {};
  const KeyInterval range{std::max<int64_t>(0, first), std::min(length(b), last + 1)};
  return attributes.mm_prefix_clamp_window ? range.Intersect(WindowAt(b, p)) : range;
}

KeyInterval PagedAttentionProblem::Hull(int64_t b) const {
  // Both ends of a base interval grow with p. Causal rows at negative positions see nothing.
  const int64_t last = length(b) - 1;
  const int64_t first = is_causal(b) ? std::max<int64_t>(0, context(b)) : context(b);
  if (num_queries(b) == 0 || last < first) return {};
  KeyInterval hull{BaseAt(b, first).begin, BaseAt(b, last).end};
  for (int64_t r = 0; r < num_ranges; ++r) {
    const int64_t range_first = ranges[(b * num_ranges + r) * 2];
    const int64_t range_last = ranges[(b * num_ranges + r) * 2 + 1];
    const int64_t p = std::max(range_first, first);
    if (range_first >= range_last || p > std::min(range_last, last)) continue;
    KeyInterval range = RangeAt(b, p, r);
    range.end = std::max(range.end, RangeAt(b, std::min(range_last, last), r).end);
    if (range.empty()) continue;
    hull = hull.empty()
               ? range
               : KeyInterval{std::min(hull.begin, range.begin), std::max(hull.end, range.end)};
  }
  return hull;
}

absl::StatusOr<PagedAttentionProblem> MakePagedAttentionProblem(const KernelArgs& args) {
  PagedAttentionProblem p;
  PF_ASSIGN_OR_RETURN(p.attributes, ParsePagedAttention(*args.node));
  const TensorArg& query = args.input(kPagedAttentionIn["query"]);
  const TensorArg& cache = args.input(kPagedAttentionIn["key_cache"]);
  const auto floats = [&](int i) { return args.input(i).as<const float>(); };
  const auto ints = [&](int i) { return args.input(i).as<const int32_t>(); };
  p.compute_type = p.attributes.ComputeType(query.dtype);
  PF_ASSIGN_OR_RETURN(p.format, CacheFormat::Make(p.attributes.mode, cache.dtype));
  const TensorArg& output_scale = args.input(kPagedAttentionIn["output_scale"]);
  p.output_type = p.attributes.OutputType(query.dtype, output_scale.present());
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
  p.scale = p.attributes.scale.value_or(1.0f / std::sqrt(static_cast<float>(p.head_size)));

  p.query = query.data;
  const CacheShape shape{p.num_blocks, p.block_size, p.num_kv_heads, p.head_size};
  p.keys =
      DenseRows(p.format, shape, cache.data, args.input(kPagedAttentionIn["k_scale_cache"]).data);
  p.values = DenseRows(p.format, shape, args.input(kPagedAttentionIn["value_cache"]).data,
                       args.input(kPagedAttentionIn["v_scale_cache"]).data);
  p.query_start_loc = ints(kPagedAttentionIn["query_start_loc"]);
  p.seq_lens = ints(kPagedAttentionIn["seq_lens"]);
  p.block_table = ints(kPagedAttentionIn["block_table"]);
  p.k_scale = ScalarOr(args.input(kPagedAttentionIn["k_scale"]), 1);
  p.v_scale = ScalarOr(args.input(kPagedAttentionIn["v_scale"]), 1);
  p.q_scale = ScalarOr(args.input(kPagedAttentionIn["q_scale"]), 1);
  p.head_sink = args.input(kPagedAttentionIn["head_sink"]).present()
                    ? &args.input(kPagedAttentionIn["head_sink"])
                    : nullptr;
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

}  // namespace pagefuse
