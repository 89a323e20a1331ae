// SPDX-License-Identifier: Apache-2.0
// The batch of a paged attention: sizes, where each sequence's tokens and keys lie, and which keys each token sees. Compiles for devices too.
#pragma once

#include <algorithm>
#include <cstdint>

namespace pagefuse {

// Positions [begin, end); empty if end <= begin.
struct KeyInterval {
  int64_t begin = 0, end = 0;
  constexpr bool empty() const { return end <= begin; }
  constexpr bool Holds(int64_t position) const { return begin <= position && position < end; }
  constexpr KeyInterval Intersect(KeyInterval other) const {
    return {std::max(begin, other.begin), std::min(end, other.end)};
  }
};

// Which keys a query token sees, and what its scores and its result become.
struct AttentionRules {
  bool is_causal = true;
  // 0: none; else the number of visible keys, the token itself included.
  int64_t sliding_window = 0;
  float softcap = 0;  // 0: none
  int64_t chunk_lookback = -1;
  bool use_alibi_sqrt = false;
  bool mm_prefix_clamp_window = false;
  bool replaces_nan = false;
  float nan_value = 0;  // in place of what is no number in the result

  // Tokens in a chunk, 0 where chunks are off.
  constexpr int64_t chunk_size() const {
    return chunk_lookback >= 0 && sliding_window > 0 ? sliding_window / (chunk_lookback + 1) : 0;
  }
  // An element of the result, before it takes the type of the output.
  constexpr float ResultOf(float x) const { return replaces_nan && x != x ? nan_value : x; }
};

// Pointers are of the memory of the device that computes.
struct AttentionBatch {
  AttentionRules rules;
  int64_t num_tokens, num_sequences, num_heads, num_kv_heads, head_size;
  int64_t num_blocks, block_size, table_columns, num_ranges, qq_size;
  float scale;

  const int32_t* query_start_loc;  // [B + 1]; null: a token each
  const int32_t* seq_lens;
  const int32_t* block_table;
  const float* alibi_slopes;  // null where absent, as all below
  const float* qq_bias;
  const int32_t* ranges;
  const bool* causal_flags;

  constexpr int64_t group() const { return num_heads / num_kv_heads; }
  // The sequence's first token.
  constexpr int64_t first_token(int64_t b) const {
    return query_start_loc != nullptr ? query_start_loc[b] : b;
  }
  constexpr int64_t num_queries(int64_t b) const { return first_token(b + 1) - first_token(b); }
  constexpr int64_t length(int64_t b) const { return seq_lens[b]; }
  // Position of the sequence's first query token; negative if it has more query tokens than keys.
  constexpr int64_t context(int64_t b) const { return length(b) - num_queries(b); }
  constexpr bool is_causal(int64_t b) const {
    return causal_flags != nullptr ? causal_flags[b] : rules.is_causal;
  }

  // Keys that window or chunks leave to a token at position p, causality aside.
  constexpr KeyInterval WindowAt(int64_t b, int64_t p) const {
    const int64_t window = rules.sliding_window;
    if (const int64_t chunk = rules.chunk_size(); chunk > 0) {
      const int64_t own = p < 0 ? 0 : p / chunk;
      return {std::max<int64_t>(0, own - rules.chunk_lookback) * chunk, length(b)};
    }
    if (window == 0) return {0, length(b)};
    return {std::max<int64_t>(0, p - window + 1),
            is_causal(b) ? length(b) : std::min(length(b), p + window)};
  }
  // Keys that causality and window leave to it.
  constexpr KeyInterval BaseAt(int64_t b, int64_t p) const {
    KeyInterval interval = WindowAt(b, p);
    if (is_causal(b)) interval.end = std::min(interval.end, p + 1);
    return interval;
  }
  // Keys that range r of the sequence adds; empty if it does not hold p.
  constexpr KeyInterval RangeAt(int64_t b, int64_t p, int64_t r) const {
    const int64_t first = ranges[(b * num_ranges + r) * 2];
    const int64_t last = ranges[(b * num_ranges + r) * 2 + 1];
    if (first >= last || p < first || p > last) return {};
    const KeyInterval range{std::max<int64_t>(0, first), std::min(length(b), last + 1)};
    return rules.mm_prefix_clamp_window ? range.Intersect(WindowAt(b, p)) : range;
  }
  // Whether the token at position p sees key j of its sequence, where `base` is BaseAt(b, p).
  constexpr bool Sees(int64_t b, int64_t p, KeyInterval base, int64_t j) const {
    if (base.Holds(j)) return true;
    for (int64_t r = 0; r < num_ranges; ++r) {
      if (RangeAt(b, p, r).Holds(j)) return true;
    }
    return false;
  }

  // The smallest interval with every key that some row of the sequence at positions [from, to] sees.
  constexpr KeyInterval HullOf(int64_t b, int64_t from, int64_t to) const;
  // The same of all its rows.
  constexpr KeyInterval Hull(int64_t b) const { return HullOf(b, context(b), length(b) - 1); }
};

constexpr KeyInterval AttentionBatch::HullOf(int64_t b, int64_t from, int64_t to) const {
  // Both ends of a base interval grow with p. Causal rows at negative positions see nothing.
  const int64_t first = is_causal(b) ? std::max<int64_t>(0, from) : from;
  if (to < first) return {};
  KeyInterval hull{BaseAt(b, first).begin, BaseAt(b, to).end};
  for (int64_t r = 0; r < num_ranges; ++r) {
    const int64_t range_first = ranges[(b * num_ranges + r) * 2];
    const int64_t range_last = ranges[(b * num_ranges + r) * 2 + 1];
    const int64_t p = std::max(range_first, first);
    if (range_first >= range_last || p > std::min(range_last, to)) continue;
    KeyInterval range = RangeAt(b, p, r);
    range.end = std::max(range.end, RangeAt(b, std::min(range_last, to), r).end);
    if (range.empty()) continue;
    hull = hull.empty()
               ? range
               : KeyInterval{std::min(hull.begin, range.begin), std::max(hull.end, range.end)};
  }
  return hull;
}

}  // namespace pagefuse
