// SPDX-License-Identifier: Apache-2.0
// The vector parts of a task on tiles: packing of the query, softmax of transposed scores. Include
// inside a file that hwy/foreach_target.h recompiles. Works on every target, is meant for AVX-512.
#if defined(PAGEFUSE_KERNELS_LATENT_SPARSE_MLA_ATTENTION_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAGEFUSE_KERNELS_LATENT_SPARSE_MLA_ATTENTION_TILES_INL_H_
#undef PAGEFUSE_KERNELS_LATENT_SPARSE_MLA_ATTENTION_TILES_INL_H_
#else
#define PAGEFUSE_KERNELS_LATENT_SPARSE_MLA_ATTENTION_TILES_INL_H_
#endif

#include <algorithm>
#include <cstring>
#include <limits>

#include "hwy/highway.h"

#include "pagefuse/ops/kernels/attention/paged_attention_prefill-inl.h"
#include "pagefuse/ops/kernels/attention/paged_attention_softmax-inl.h"
#include "pagefuse/ops/kernels/latent/latent_rows-inl.h"
#include "pagefuse/ops/kernels/latent/sparse_mla_attention_tiles.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DU = hn::RebindToUnsigned<DF>;
using VU = hn::Vec<DU>;

// `count` floats, in the order of elements, of a row of C tiles with interleaved columns
// (linalg/bf16_rows.h).
HWY_INLINE void OrderColumns(const float* tiles, int64_t count, float* to) {
  const hn::Full128<float> four;
  for (int64_t i = 0; i < count; i += 4) {
    const float* from =
        tiles + i / kTileDepth * 2 * kTileFloats + i / 4 % 2 * kTileFloats + i % kTileDepth / 8 * 4;
    if (i + 4 <= count) {
      hn::StoreU(hn::Load(four, from), four, to + i);
    } else {
      std::copy_n(from, count - i, to + i);
    }
  }
}

// Row `index` of q, of all T * H, as `terms` rows of bfloat16 whose sum it is, zeros behind them;
// term i goes to to + i * stride.
HWY_INLINE void SplitQueryRow(const SparseMlaProblem& p, int64_t index, int64_t words,
                              uint16_t* HWY_RESTRICT to, int64_t stride) {
  const auto size = static_cast<size_t>(p.head_size);
  if (p.query_type == DataType::kBfloat16) {
    std::memcpy(to, static_cast<const uint16_t*>(p.q) + index * p.head_size, size * 2);
    std::fill(to + size, to + words, uint16_t{0});
    return;
  }
  const DF df;
  const auto* from = static_cast<const Float16*>(p.q) + index * p.head_size;
  auto* first = reinterpret_cast<Bfloat16*>(to);
  auto* second = reinterpret_cast<Bfloat16*>(to + stride);
  for (size_t d = 0; d < static_cast<size_t>(words); d += hn::Lanes(df)) {
    auto x = hn::Zero(df);
    if (d + hn::Lanes(df) <= size) {
      x = LoadToFloat(df, from + d);
    } else if (d < size) {
      x = LoadToFloatN(df, from + d, size - d);
    }
    StoreFromFloat(x, df, first + d);
    StoreFromFloat(hn::Sub(x, LoadToFloat(df, first + d)), df, second + d);
  }
}

// 2^x for x <= 0 or a little above, within 3e-6 of it: weights are bfloat16, their sums need no
// more. 0 for -inf, NaN for NaN.
HWY_INLINE V Exp2(V x) {
  const DF df;
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  constexpr int kMinusFloor = 1;
  const V f = V{_mm512_reduce_ps(x.raw, kMinusFloor)};  // in [0, 1)
  // Minimax polynomial of 2^f.
  V p = hn::Set(df, 0.0135341678f);
  p = hn::MulAdd(p, f, hn::Set(df, 0.0520114601f));
  p = hn::MulAdd(p, f, hn::Set(df, 0.241442755f));
  p = hn::MulAdd(p, f, hn::Set(df, 0.693003833f));
  p = hn::MulAdd(p, f, hn::Set(df, 1.00000262f));
  return V{_mm512_scalef_ps(p.raw, x.raw)};  // times 2^floor(x)
#else
  return Exp(df, hn::Mul(x, hn::Set(df, 0.69314718f)));
#endif
}

// Softmax of 16 query rows against a tile of keys, from transposed scores [kPartKeys][16], in
// pieces: Begin, then Weights of 32 keys after the other. Lanes [lane, lane + Lanes) of the 16.
class TransposedSoftmax {
 public:
  // By query row.
  struct State {
    float* max;              // of scores times factor, so far
    float* base;             // the same, or 0 where it is -inf: then every weight is 0
    float* sum;              // of weights
    float* alpha;            // 2^(max before the tile - max)
    const int32_t* visible;  // how many keys of the tile it sees
    bool sees_all;           // all of them see all of the tile
  };

  // `factor` is the scale of scores times log2(e).
  TransposedSoftmax(const float* scores, int64_t count, float factor, const State& state)
      : scores_(scores), count_(count), factor_(factor), state_(state) {}

  HWY_INLINE void Begin(int64_t lane) const {
    const DF df;
    const V old_max = hn::LoadU(df, state_.max + lane);
    const V max = hn::Max(old_max, state_.sees_all ? Max<true>(lane) : Max<false>(lane));
    const V lowest = hn::Set(df, -std::numeric_limits<float>::infinity());
    const V base = hn::IfThenElse(hn::Eq(max, lowest), hn::Zero(df), max);
    const V alpha = Exp2(hn::Sub(old_max, base));
    hn::StoreU(max, df, state_.max + lane);
    hn::StoreU(base, df, state_.base + lane);
    hn::StoreU(alpha, df, state_.alpha + lane);
    hn::StoreU(hn::Mul(hn::LoadU(df, state_.sum + lane), alpha), df, state_.sum + lane);
  }

  // Weights of keys [key, key + 32) into an A tile, zeros for those that are not seen.
  HWY_INLINE void Weights(int64_t lane, int64_t key, uint16_t* tile) const {
    const DF df;
    const V base = hn::LoadU(df, state_.base + lane);
    V sum = hn::LoadU(df, state_.sum + lane);
    const bool whole = state_.sees_all && key + kTileDepth <= count_;
    constexpr int64_t kStep = 8;
    for (int64_t k = 0; k < kTileDepth; k += kStep) {
      auto* to = reinterpret_cast<float*>(tile) + lane * (kTileDepth / 2) + k / 2;
      if (whole) {
        EightKeys<true>(lane, key + k, base, sum, to);
      } else {
        EightKeys<false>(lane, key + k, base, sum, to);
      }
    }
    hn::StoreU(sum, df, state_.sum + lane);
  }

 private:
  // True in the lanes of query rows that see a key.
  HWY_INLINE hn::Mask<DF> Sees(int64_t lane, int64_t key) const {
    const hn::RebindToSigned<DF> di;
    const auto visible = hn::LoadU(di, state_.visible + lane);
    return hn::RebindMask(DF(), hn::Gt(visible, hn::Set(di, static_cast<int32_t>(key))));
  }

  // The score of a key times the factor, -inf where it is not seen.
  template <bool sees_all>
  HWY_INLINE V Score(int64_t lane, int64_t key) const {
    const DF df;
    const V s = hn::Mul(hn::LoadU(df, scores_ + key * kTileColumns + lane), hn::Set(df, factor_));
    if constexpr (sees_all) return s;
    return hn::IfThenElse(Sees(lane, key), s, hn::Set(df, -std::numeric_limits<float>::infinity()));
  }

  template <bool sees_all>
  HWY_INLINE V Max(int64_t lane) const {
    const DF df;
    V max[4];
    for (V& m : max) m = hn::Set(df, -std::numeric_limits<float>::infinity());
    int64_t key = 0;
    for (; key + 4 <= count_; key += 4) {
      for (int64_t k = 0; k < 4; ++k) max[k] = hn::Max(Score<sees_all>(lane, key + k), max[k]);
    }
    for (; key < count_; ++key) max[0] = hn::Max(Score<sees_all>(lane, key), max[0]);
    return hn::Max(hn::Max(max[0], max[1]), hn::Max(max[2], max[3]));
  }

  template <bool sees_all>
  HWY_INLINE V Weight(int64_t lane, int64_t key, V base) const {
    const DF df;
    const V s = hn::LoadU(df, scores_ + key * kTileColumns + lane);
    const V weight = Exp2(hn::MulSub(s, hn::Set(df, factor_), base));
    if constexpr (sees_all) return weight;
    if (key >= count_) return hn::Zero(df);
    return hn::IfThenElseZero(Sees(lane, key), weight);
  }

  // Weights of keys [key, key + 8): four pairs of words in each query row's row of an A tile.
  template <bool sees_all>
  HWY_INLINE void EightKeys(int64_t lane, int64_t key, V base, V& sum, float* to) const {
    const DF df;
    const DU du;
    // To the nearest bfloat16, ties away from 0; what a NaN becomes is one.
    const VU half = hn::Set(du, 0x8000);
    V pairs[4];
    for (int64_t i = 0; i < 4; ++i) {
      const V even = Weight<sees_all>(lane, key + 2 * i, base);
      const V odd = Weight<sees_all>(lane, key + 2 * i + 1, base);
      sum = hn::Add(sum, hn::Add(even, odd));
      const VU low = hn::ShiftRight<16>(hn::Add(hn::BitCast(du, even), half));
      const VU high = hn::And(hn::Add(hn::BitCast(du, odd), half), hn::Set(du, 0xFFFF0000u));
      pairs[i] = hn::BitCast(df, hn::Or(low, high));
    }
    TransposeFour(pairs[0], pairs[1], pairs[2], pairs[3], kTileDepth / 2, to);
  }

  const float* scores_;
  const int64_t count_;
  const float factor_;
  const State state_;
};

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#endif  // toggle
