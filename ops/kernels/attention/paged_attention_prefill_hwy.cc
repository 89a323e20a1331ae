// SPDX-License-Identifier: Apache-2.0
// A tile of query rows against all keys that they see.
//
// Compute-bound, so both products run as small matrix products on packed float tiles. Rows are
// (token, query head) of one KV head, token by token, so that rows next to each other see nearly
// the same keys and work above the diagonal is skipped in small steps. Key tiles start at multiples
// of kPaTileKeys whatever the query tile is: a row's result does not depend on its neighbours.
#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

// Sums of weights are multiplied and added in plain C++, fused where the
// target can.
#pragma GCC optimize("fp-contract=fast")

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/ops/kernels/attention/paged_attention_prefill_hwy.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "pagefuse/ops/kernels/attention/paged_attention_prefill-inl.h"
#include "pagefuse/ops/kernels/attention/paged_attention_prefill.h"
#include "pagefuse/ops/kernels/attention/paged_attention_softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

class PrefillTile {
  // Query and output rows are copied one by one; the memory needs to know of some of them at a
  // time.
  static constexpr size_t kRowsAhead = 6;

 public:
  explicit PrefillTile(const PagedPrefillTask& task)
      : task_(task), p_(*task.problem), at_(p_, task.last_query - task.first_query, task.scratch) {}

  HWY_INLINE void Run() {
    Begin();
    KeyInterval all{std::numeric_limits<int64_t>::max(), 0};
    for (const KeyInterval& hull : hulls_) all = Join(all, hull);
    if (!all.empty()) {
      for (int64_t tile = all.begin / kPaTileKeys * kPaTileKeys; tile < all.end;
           tile += kPaTileKeys) {
        next_ = all.Intersect({tile + kPaTileKeys, tile + 2 * kPaTileKeys});
        Tile(tile, all.Intersect({tile, tile + kPaTileKeys}));
      }
    }
    for (size_t r = 0; r < rows_.size(); ++r) {
      PrefetchRow(p_.output, p_.output_type, r + kRowsAhead);
      FinishRow(p_, Token(r), HeadOf(r), {states_[r].max, states_[r].sum, output(r)});
    }
  }

 private:
  int64_t QueryOf(size_t r) const {
    return task_.first_query + static_cast<int64_t>(r) / p_.group();
  }
  int64_t Token(size_t r) const { return p_.query_start_loc[task_.b] + QueryOf(r); }
  int64_t HeadOf(size_t r) const {
    return task_.kv_head * p_.group() + static_cast<int64_t>(r) % p_.group();
  }
  // Brings a row of query or output nearer, if there is such a row.
  HWY_INLINE void PrefetchRow(const void* tensor, DataType type, size_t r) const {
    if (r >= rows_.size()) return;
    constexpr int64_t kLine = 64;
    const int64_t bytes = p_.head_size * BitWidth(type) / 8;
    const auto* row =
        static_cast<const uint8_t*>(tensor) + (Token(r) * p_.num_heads + HeadOf(r)) * bytes;
    for (int64_t i = 0; i < bytes; i += kLine) hwy::Prefetch(row + i);
  }

  float* query(size_t r) const { return at_.query + static_cast<int64_t>(r) * at_.row_floats; }
  float* output(size_t r) const { return at_.output + static_cast<int64_t>(r) * at_.row_floats; }
  float* scores(size_t r) const { return at_.scores + static_cast<int64_t>(r) * kPaTileKeys; }

  static KeyInterval Join(KeyInterval a, KeyInterval b) {
    if (a.empty() || b.empty()) return a.empty() ? b : a;
    return {std::min(a.begin, b.begin), std::max(a.end, b.end)};
  }

  // Query rows, what each row sees, and zero results.
  HWY_INLINE void Begin() {
    const size_t count = static_cast<size_t>((task_.last_query - task_.first_query) * p_.group());
    padded_rows_ = (count + kRows - 1) / kRows * kRows;
    std::fill_n(at_.query, static_cast<int64_t>(padded_rows_) * at_.row_floats, 0.0f);
    std::fill_n(at_.output, static_cast<int64_t>(padded_rows_) * at_.row_floats, 0.0f);
    std::fill_n(at_.scores, static_cast<int64_t>(padded_rows_) * kPaTileKeys, 0.0f);
    std::fill_n(at_.alpha, padded_rows_, 1.0f);
    std::iota(at_.key_offsets, at_.key_offsets + kPaTileKeys, 0);
    rows_.resize(count);
    states_.resize(count);
    intervals_.reserve(static_cast<size_t>(task_.last_query - task_.first_query) *
                       static_cast<size_t>(1 + p_.num_ranges));
    bool key_scales = false;
    bool value_scales = false;
    ForFormat(p_, [&](const auto& views) {
      key_scales = decltype(views.Keys())::kRowScale;
      value_scales = decltype(views.Values())::kRowScale;
    });
    for (size_t r = 0; r < count; ++r) {
      PrefetchRow(p_.query, p_.compute_type, r + kRowsAhead);
      LoadQueryRow(p_, Token(r), HeadOf(r), query(r));
      rows_[r] = MakeScoreRow(p_, task_.b, QueryOf(r), HeadOf(r));
      rows_[r].key_offsets = at_.key_offsets;
      if (key_scales) rows_[r].key_scales = at_.key_scales;
      if (value_scales) rows_[r].value_scales = at_.value_scales;
      // All heads of a token see the same keys.
      rows_[r].visible = static_cast<int64_t>(r) % p_.group() == 0 ? Visible(rows_[r].position)
                                                                   : rows_[r - 1].visible;
    }
    hulls_.assign(padded_rows_ / kRows, KeyInterval());
    for (size_t r = 0; r < count; ++r) {
      for (const KeyInterval& i : rows_[r].visible) hulls_[r / kRows] = Join(hulls_[r / kRows], i);
    }
  }

  std::span<const KeyInterval> Visible(int64_t position) {
    const size_t first = intervals_.size();
    const KeyInterval base = p_.BaseAt(task_.b, position);
    if (!base.empty()) intervals_.push_back(base);
    for (int64_t r = 0; r < p_.num_ranges; ++r) {
      const KeyInterval range = p_.RangeAt(task_.b, position, r);
      if (!range.empty()) intervals_.push_back(range);
    }
    return {intervals_.data() + first, intervals_.size() - first};
  }

  HWY_INLINE void Tile(int64_t tile, KeyInterval keys) {
    bool finite = true;
    ForFormat(p_, [&](const auto& views) HWY_ATTR {
      PackKeys(views.Keys(), tile, keys);
      finite = PackValues(views.Values(), tile, keys);
    });
    Scores(tile);
    for (size_t r = 0; r < rows_.size(); ++r) Weights(tile, r);
    if (finite) {
      Values(tile);
    } else {
      SparseValues(tile);
    }
  }

  // Compiled once for each codec, whichever formats have it.
  template <class Codec>
  void PackKeys(const Codec& codec, int64_t tile, KeyInterval keys) {
    TilePacker(task_, at_, codec).PackKeys(tile, keys);
  }
  template <class Codec>
  bool PackValues(const Codec& codec, int64_t tile, KeyInterval keys) {
    return TilePacker(task_, at_, codec).PackValues(tile, keys);
  }

  // Keys of the tile that a group of rows sees, counted from the tile's first.
  KeyInterval InTile(int64_t tile, size_t group) const {
    const KeyInterval seen = hulls_[group].Intersect({tile, tile + kPaTileKeys});
    return {seen.begin - tile, seen.end - tile};
  }

  HWY_INLINE void Scores(int64_t tile) {
    const auto head_size = static_cast<size_t>(p_.head_size);
    ScorePasses<true>(tile, 0, std::min(head_size, kPassSize));
    for (size_t d = kPassSize; d < head_size; d += kPassSize) {
      ScorePasses<false>(tile, d, std::min(head_size - d, kPassSize));
    }
  }

  // Adds elements [d, d + size) to the scores of all rows.
  template <bool first>
  HWY_INLINE void ScorePasses(int64_t tile, size_t d, size_t size) {
    const auto width = static_cast<int64_t>(PanelWidth());
    for (int64_t column = 0; column < kPaTileKeys; column += width) {
      for (size_t group = 0; group < hulls_.size(); ++group) {
        if (InTile(tile, group).Intersect({column, column + width}).empty()) continue;
        PrefetchNext();
        ScorePass<first>(query(group * kRows) + d, static_cast<size_t>(at_.row_floats),
                         at_.keys + column * at_.row_floats + d * PanelWidth(), size,
                         scores(group * kRows) + column);
      }
    }
  }

  // Brings two keys' rows of the next tile nearer, while there are any.
  HWY_INLINE void PrefetchNext() {
    constexpr int64_t kLine = 64;
    const int64_t end = std::min(next_.end, next_.begin + 2);
    const int64_t key_bytes = p_.key_row_bytes();
    const int64_t value_bytes = p_.value_row_bytes();
    for (; next_.begin < end; ++next_.begin) {
      const uint8_t* key = p_.Row(p_.keys, task_.b, next_.begin, task_.kv_head).data;
      const uint8_t* value = p_.Row(p_.values, task_.b, next_.begin, task_.kv_head).data;
      for (int64_t i = 0; i < key_bytes; i += kLine) hwy::Prefetch(key + i);
      for (int64_t i = 0; i < value_bytes; i += kLine) hwy::Prefetch(value + i);
    }
  }

  HWY_INLINE void Weights(int64_t tile, size_t r) {
    const KeyInterval seen = InTile(tile, r / kRows);
    if (seen.empty()) return;
    const size_t lanes = hn::Lanes(DF());
    const size_t first = static_cast<size_t>(seen.begin) / lanes * lanes;
    const size_t last = (static_cast<size_t>(seen.end) + lanes - 1) / lanes * lanes;
    at_.alpha[r] = SoftmaxTile(rows_[r], tile, first, last, scores(r), states_[r]);
  }

  HWY_INLINE void Values(int64_t tile) {
    const auto width = static_cast<int64_t>(PanelWidth());
    for (int64_t d = 0; d < at_.row_floats; d += width) {
      for (size_t group = 0; group < hulls_.size(); ++group) {
        const KeyInterval seen = InTile(tile, group);
        if (seen.empty()) continue;
        ValuePanel(scores(group * kRows), at_.alpha + group * kRows, at_.values + d * kPaTileKeys,
                   seen, output(group * kRows) + d, static_cast<size_t>(at_.row_floats));
      }
    }
  }

  // As Values, for a tile with infinities or NaN among its values, which keys that a row does not see
  // must not bring into it.
  void SparseValues(int64_t tile) {
    const auto width = static_cast<int64_t>(PanelWidth());
    for (size_t r = 0; r < rows_.size(); ++r) {
      const KeyInterval seen = InTile(tile, r / kRows);
      if (seen.empty()) continue;
      for (int64_t d = 0; d < p_.head_size; ++d) {
        const float* values = at_.values + d / width * width * kPaTileKeys + d % width;
        float sum = output(r)[d] * at_.alpha[r];
        for (int64_t j = seen.begin; j < seen.end; ++j) {
          const float weight = scores(r)[j];
          if (weight != 0 || SeesAll(rows_[r], tile + j, tile + j + 1)) {
            sum += weight * values[j * width];
          }
        }
        output(r)[d] = sum;
      }
    }
  }

  const PagedPrefillTask& task_;
  const PagedAttentionProblem& p_;
  const PrefillScratch at_;
  size_t padded_rows_ = 0;
  KeyInterval next_;  // keys of the next tile that are still to be prefetched
  std::vector<ScoreRow> rows_;
  std::vector<SoftmaxState> states_;
  std::vector<KeyInterval> intervals_;  // what the tokens see, token by token
  std::vector<KeyInterval> hulls_;      // by group of kRows rows
};

void PrefillQueries(const PagedPrefillTask& task) { PrefillTile(task).Run(); }

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagefuse {

HWY_EXPORT(PrefillQueries);

int64_t PagedPrefillScratch(const PagedAttentionProblem& p, int64_t num_queries) {
  return PrefillScratch(p, num_queries, nullptr).bytes;
}

void RunPagedPrefill(const PagedPrefillTask& task) { HWY_DYNAMIC_DISPATCH(PrefillQueries)(task); }

}  // namespace pagefuse
#endif
