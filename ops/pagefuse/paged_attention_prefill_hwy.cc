// A tile of query rows against all keys that they see.
//
// Compute-bound, so both products run as small matrix products on packed float tiles. Rows are
// (token, query head) of one KV head, token by token, so that rows next to each other see nearly
// the same keys and work above the diagonal is skipped in small steps. Key tiles start at multiples
// of kPaTileKeys whatever the query tile is: a row's result does not depend on its neighbours.
#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/ops/pagefuse/paged_attention_prefill_hwy.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "pagefuse/ops/pagefuse/paged_attention_hwy.h"
#include "pagefuse/ops/pagefuse/paged_attention_prefill.h"
#include "pagefuse/ops/pagefuse/paged_attention_softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using V = hn::Vec<DF>;

// A micro-kernel has kRows x 2 vectors of sums: with 32 registers 24 of them, with 16 registers 12.
constexpr size_t kRows = HWY_TARGET <= HWY_AVX3 ? 12 : 6;
HWY_INLINE size_t PanelWidth() { return 2 * hn::Lanes(DF()); }

// scores[r][0, 2 vectors) = rows of query times one panel of packed keys [size][2 vectors].
HWY_INLINE void ScorePanel(const float* HWY_RESTRICT query, size_t query_stride,
                           const float* HWY_RESTRICT keys, size_t size,
                           float* HWY_RESTRICT scores) {
  const DF df;
  const size_t lanes = hn::Lanes(df);
  V sums[kRows][2];
  for (auto& row : sums) row[0] = row[1] = hn::Zero(df);
  for (size_t d = 0; d < size; ++d) {
    const V k0 = hn::Load(df, keys);
    const V k1 = hn::Load(df, keys + lanes);
    keys += 2 * lanes;
    HWY_UNROLL(kRows)
    for (size_t r = 0; r < kRows; ++r) {
      const V q = hn::Set(df, query[r * query_stride + d]);
      sums[r][0] = hn::MulAdd(q, k0, sums[r][0]);
      sums[r][1] = hn::MulAdd(q, k1, sums[r][1]);
    }
  }
  for (size_t r = 0; r < kRows; ++r) {
    hn::Store(sums[r][0], df, scores + r * kPaTileKeys);
    hn::Store(sums[r][1], df, scores + r * kPaTileKeys + lanes);
  }
}

// output[r][0, 2 vectors) = alpha[r] * output + sum over keys [begin, end) of weights[r][j] times
// one panel of packed values [kPaTileKeys][2 vectors].
HWY_INLINE void ValuePanel(const float* HWY_RESTRICT weights, const float* HWY_RESTRICT alpha,
                           const float* HWY_RESTRICT values, KeyInterval keys,
                           float* HWY_RESTRICT output, size_t output_stride) {
  const DF df;
  const size_t lanes = hn::Lanes(df);
  V sums[kRows][2];
  for (size_t r = 0; r < kRows; ++r) {
    const V factor = hn::Set(df, alpha[r]);
    sums[r][0] = hn::Mul(factor, hn::Load(df, output + r * output_stride));
    sums[r][1] = hn::Mul(factor, hn::Load(df, output + r * output_stride + lanes));
  }
  for (int64_t j = keys.begin; j < keys.end; ++j) {
    const V v0 = hn::Load(df, values + static_cast<size_t>(j) * 2 * lanes);
    const V v1 = hn::Load(df, values + static_cast<size_t>(j) * 2 * lanes + lanes);
    HWY_UNROLL(kRows)
    for (size_t r = 0; r < kRows; ++r) {
      const V w = hn::Set(df, weights[r * kPaTileKeys + static_cast<size_t>(j)]);
      sums[r][0] = hn::MulAdd(w, v0, sums[r][0]);
      sums[r][1] = hn::MulAdd(w, v1, sums[r][1]);
    }
  }
  for (size_t r = 0; r < kRows; ++r) {
    hn::Store(sums[r][0], df, output + r * output_stride);
    hn::Store(sums[r][1], df, output + r * output_stride + lanes);
  }
}

// Packs four keys' elements [d, d + Lanes) into columns of a panel: to[(d + i) * width + 0, 4).
HWY_INLINE void TransposeFour(V a, V b, V c, V d, size_t width, float* HWY_RESTRICT to) {
  const DF df;
  const hn::Repartition<uint64_t, DF> du64;
  const size_t lanes = hn::Lanes(df);
  const auto ab_low = hn::BitCast(du64, hn::InterleaveLower(df, a, b));   // a0 b0 a1 b1
  const auto ab_high = hn::BitCast(du64, hn::InterleaveUpper(df, a, b));  // a2 b2 a3 b3
  const auto cd_low = hn::BitCast(du64, hn::InterleaveLower(df, c, d));
  const auto cd_high = hn::BitCast(du64, hn::InterleaveUpper(df, c, d));
  alignas(64) float rows[4][hn::MaxLanes(df)];
  hn::Store(hn::BitCast(df, hn::InterleaveLower(du64, ab_low, cd_low)), df, rows[0]);
  hn::Store(hn::BitCast(df, hn::InterleaveUpper(du64, ab_low, cd_low)), df, rows[1]);
  hn::Store(hn::BitCast(df, hn::InterleaveLower(du64, ab_high, cd_high)), df, rows[2]);
  hn::Store(hn::BitCast(df, hn::InterleaveUpper(du64, ab_high, cd_high)), df, rows[3]);
  const hn::Full128<float> four;
  for (size_t block = 0; block < lanes; block += 4) {
    for (size_t i = 0; i < 4; ++i) {
      hn::Store(hn::Load(four, rows[i] + block), four, to + (block + i) * width);
    }
  }
}

template <class Codec>
class TilePacker {
 public:
  TilePacker(const PagedPrefillTask& task, const PrefillScratch& at, const Codec& codec)
      : task_(task), p_(*task.problem), at_(at), codec_(codec) {}

  // Keys `keys` of the tile at `tile` into panels [kPaTileKeys / width][size][width], and their
  // scales. Other columns stay as they are: no row reads them.
  HWY_INLINE void PackKeys(int64_t tile, KeyInterval keys) {
    const size_t width = PanelWidth();
    for (int64_t j = keys.begin / 4 * 4; j < keys.end; j += 4) {
      typename Codec::Row rows[4];
      for (int64_t k = 0; k < 4; ++k) {
        const int64_t key = std::clamp(j + k, keys.begin, keys.end - 1);
        rows[k] = codec_.Open(p_.Row(p_.keys, task_.b, key, task_.kv_head));
        if constexpr (Codec::kRowScale) at_.key_scales[j + k - tile] = rows[k].scale;
      }
      const auto column = static_cast<size_t>(j - tile);
      PackFour(rows, at_.keys + column / width * width * padded_size() + column % width);
    }
  }

  // Values into panels [padded size / width][kPaTileKeys][width]. Returns whether all of them are
  // finite.
  HWY_INLINE bool PackValues(int64_t tile, KeyInterval keys) {
    const DF df;
    auto zero = hn::Zero(df);  // stays 0 while values are finite
    for (int64_t j = keys.begin; j < keys.end; ++j) {
      const typename Codec::Row row = codec_.Open(p_.Row(p_.values, task_.b, j, task_.kv_head));
      if constexpr (Codec::kRowScale) at_.value_scales[j - tile] = row.scale;
      zero = PackValue(row, static_cast<size_t>(j - tile), zero);
    }
    return hn::AllTrue(df, hn::Eq(zero, hn::Zero(df)));
  }

 private:
  size_t size() const { return static_cast<size_t>(p_.head_size); }
  size_t padded_size() const { return static_cast<size_t>(at_.row_floats); }

  HWY_INLINE void PackFour(const typename Codec::Row (&rows)[4], float* HWY_RESTRICT to) {
    const DF df;
    const size_t lanes = hn::Lanes(df);
    size_t d = 0;
    for (; d + lanes <= size(); d += lanes) {
      TransposeFour(codec_.Load(df, rows[0], d), codec_.Load(df, rows[1], d),
                    codec_.Load(df, rows[2], d), codec_.Load(df, rows[3], d), PanelWidth(),
                    to + d * PanelWidth());
    }
    if (d == size()) return;
    const size_t rest = size() - d;
    TransposeFour(codec_.LoadN(df, rows[0], d, rest), codec_.LoadN(df, rows[1], d, rest),
                  codec_.LoadN(df, rows[2], d, rest), codec_.LoadN(df, rows[3], d, rest),
                  PanelWidth(), to + d * PanelWidth());
  }

  HWY_INLINE V PackValue(const typename Codec::Row& row, size_t j, V zero) {
    const DF df;
    const size_t lanes = hn::Lanes(df);
    const size_t panel = PanelWidth() * kPaTileKeys;
    for (size_t d = 0; d < padded_size(); d += lanes) {
      V v = hn::Zero(df);
      if (d + lanes <= size()) {
        v = codec_.Load(df, row, d);
      } else if (d < size()) {
        v = codec_.LoadN(df, row, d, size() - d);
      }
      zero = hn::MulAdd(v, hn::Zero(df), zero);
      const size_t in_panel = d % PanelWidth();
      hn::Store(v, df, at_.values + d / PanelWidth() * panel + j * PanelWidth() + in_panel);
    }
    return zero;
  }

  const PagedPrefillTask& task_;
  const PagedAttentionProblem& p_;
  const PrefillScratch& at_;
  const Codec& codec_;
};

class PrefillTile {
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
        Tile(tile, all.Intersect({tile, tile + kPaTileKeys}));
      }
    }
    for (size_t r = 0; r < rows_.size(); ++r) {
      const int64_t token = p_.query_start_loc[task_.b] + QueryOf(r);
      FinishRow(p_, token, HeadOf(r), {states_[r].max, states_[r].sum, output(r)});
    }
  }

 private:
  int64_t QueryOf(size_t r) const {
    return task_.first_query + static_cast<int64_t>(r) / p_.group();
  }
  int64_t HeadOf(size_t r) const {
    return task_.kv_head * p_.group() + static_cast<int64_t>(r) % p_.group();
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
    rows_.resize(count);
    states_.resize(count);
    intervals_.reserve(static_cast<size_t>(task_.last_query - task_.first_query) *
                       static_cast<size_t>(1 + p_.num_ranges));
    for (size_t r = 0; r < count; ++r) {
      LoadQueryRow(p_, p_.query_start_loc[task_.b] + QueryOf(r), HeadOf(r), query(r));
      rows_[r] = MakeScoreRow(p_, task_.b, QueryOf(r), HeadOf(r));
      if (p_.format.has_row_scales()) {
        rows_[r].key_scales = at_.key_scales;
        rows_[r].value_scales = at_.value_scales;
      }
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
    WithReader(p_.format, [&](const auto& codec) HWY_ATTR {
      TilePacker packer(task_, at_, codec);
      packer.PackKeys(tile, keys);
      finite = packer.PackValues(tile, keys);
    });
    Scores(tile);
    for (size_t r = 0; r < rows_.size(); ++r) Weights(tile, r);
    if (finite) {
      Values(tile);
    } else {
      SparseValues(tile);
    }
  }

  // Keys of the tile that a group of rows sees, counted from the tile's first.
  KeyInterval InTile(int64_t tile, size_t group) const {
    const KeyInterval seen = hulls_[group].Intersect({tile, tile + kPaTileKeys});
    return {seen.begin - tile, seen.end - tile};
  }

  HWY_INLINE void Scores(int64_t tile) {
    const auto width = static_cast<int64_t>(PanelWidth());
    for (int64_t column = 0; column < kPaTileKeys; column += width) {
      for (size_t group = 0; group < hulls_.size(); ++group) {
        if (InTile(tile, group).Intersect({column, column + width}).empty()) continue;
        ScorePanel(query(group * kRows), static_cast<size_t>(at_.row_floats),
                   at_.keys + column * at_.row_floats, static_cast<size_t>(p_.head_size),
                   scores(group * kRows) + column);
      }
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

  // As Values, for a tile with infinities or NaN among its values: a weight of 0 must not touch
  // them, since the key may be one that the row does not see.
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
          if (weight != 0) sum += weight * values[j * width];
        }
        output(r)[d] = sum;
      }
    }
  }

  const PagedPrefillTask& task_;
  const PagedAttentionProblem& p_;
  const PrefillScratch at_;
  size_t padded_rows_ = 0;
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
