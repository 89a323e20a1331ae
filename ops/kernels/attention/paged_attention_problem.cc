// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/attention/paged_attention_problem.h"

namespace pagefuse {

KeyInterval PagedAttentionProblem::WindowAt(int64_t b, int64_t p) const {
  const int64_t length = this->length(b);
  const int64_t window = rules.sliding_window;
  if (const int64_t chunk = rules.chunk_size(); chunk > 0) {
    const int64_t own = p < 0 ? 0 : p / chunk;
    return {std::max<int64_t>(0, own - rules.chunk_lookback) * chunk, length};
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
  return rules.mm_prefix_clamp_window ? range.Intersect(WindowAt(b, p)) : range;
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

}  // namespace pagefuse
