// SPDX-License-Identifier: Apache-2.0
// The inner loops of prefill: packing of key and value tiles, and the two small matrix products.
// Include inside a file that hwy/foreach_target.h recompiles.
#if defined(PAGEFUSE_KERNELS_ATTENTION_PAGED_ATTENTION_PREFILL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAGEFUSE_KERNELS_ATTENTION_PAGED_ATTENTION_PREFILL_INL_H_
#undef PAGEFUSE_KERNELS_ATTENTION_PAGED_ATTENTION_PREFILL_INL_H_
#else
#define PAGEFUSE_KERNELS_ATTENTION_PAGED_ATTENTION_PREFILL_INL_H_
#endif

#include <algorithm>

#include "hwy/highway.h"

#include "pagefuse/ops/kernels/attention/paged_attention_hwy.h"
#include "pagefuse/ops/kernels/attention/paged_attention_prefill.h"
#include "pagefuse/ops/kernels/attention/paged_attention_softmax-inl.h"
#include "pagefuse/ops/kernels/formats/for_format-inl.h"
#include "pagefuse/ops/kernels/formats/turboquant-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using V = hn::Vec<DF>;

// A micro-kernel has kRows x 2 vectors of sums: with 32 registers 24 of them, with 16 registers 12.
constexpr size_t kRows = HWY_TARGET <= HWY_AVX3 ? 12 : 6;
HWY_INLINE size_t PanelWidth() { return 2 * hn::Lanes(DF()); }

// Elements of a head that a pass over a panel of keys takes: with more of them the panel and the
// rows of query would not stay in a first-level cache of 32 KiB.
constexpr size_t kPassSize = 128;

// scores[r][0, 2 vectors) = (first ? 0 : scores) + elements [0, size) of rows of query times one
// panel of packed keys [size][2 vectors].
template <bool first>
HWY_INLINE void ScorePass(const float* HWY_RESTRICT query, size_t query_stride,
                          const float* HWY_RESTRICT keys, size_t size, float* HWY_RESTRICT scores) {
  const DF df;
  const size_t lanes = hn::Lanes(df);
  V sums[kRows][2];
  for (size_t r = 0; r < kRows; ++r) {
    for (size_t half = 0; half < 2; ++half) {
      sums[r][half] = first ? hn::Zero(df) : hn::Load(df, scores + r * kPaTileKeys + half * lanes);
    }
  }
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

#if HWY_TARGET != HWY_SCALAR
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

#endif

// Calls f(views) with the views of the cache's format.
template <class F>
HWY_INLINE void ForFormat(const PagedAttentionProblem& p, const F& f) {
  if (p.turboquant) return ForFormat(*p.turboquant, f);
  ForFormat(p.format, f);
}

// Packs rows of one codec.
template <class Codec>
class TilePacker {
 public:
  TilePacker(const PagedPrefillTask& task, const PrefillScratch& at, const Codec& codec)
      : task_(task), p_(*task.problem), at_(at), codec_(codec) {}

  // Keys `keys` of the tile at `tile` into panels [kPaTileKeys / width][size][width], and their
  // scales. Other columns stay as they are: no row reads them.
  HWY_INLINE void PackKeys(int64_t tile, KeyInterval keys) {
    for (int64_t j = keys.begin / 4 * 4; j < keys.end; j += 4) {
      typename Codec::Row rows[4];
      for (int64_t k = 0; k < 4; ++k) {
        const int64_t key = std::clamp(j + k, keys.begin, keys.end - 1);
        rows[k] = codec_.Open(p_.Row(p_.keys, task_.b, key, task_.kv_head));
        if constexpr (Codec::kRowScale) at_.key_scales[j + k - tile] = rows[k].scale;
      }
      PackFour(rows, static_cast<size_t>(j - tile));
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

  float* KeyColumn(size_t column) const {
    const size_t width = PanelWidth();
    return at_.keys + column / width * width * padded_size() + column % width;
  }

  // Columns [column, column + 4) of the packed keys.
#if HWY_TARGET == HWY_SCALAR
  HWY_INLINE void PackFour(const typename Codec::Row (&rows)[4], size_t column) {
    for (size_t k = 0; k < 4; ++k) {
      float* HWY_RESTRICT to = KeyColumn(column + k);
      for (size_t d = 0; d < size(); ++d) {
        to[d * PanelWidth()] = hn::GetLane(codec_.Load(DF(), rows[k], d));
      }
    }
  }
#else
  HWY_INLINE void PackFour(const typename Codec::Row (&rows)[4], size_t column) {
    const DF df;
    const size_t lanes = hn::Lanes(df);
    float* HWY_RESTRICT to = KeyColumn(column);
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
#endif

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

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#endif  // toggle
