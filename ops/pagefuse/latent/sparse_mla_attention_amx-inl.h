// The vector parts of an AMX task: packing of query, keys and values, softmax of transposed scores.
// Include inside a file that hwy/foreach_target.h recompiles. Works on every target, is meant for
// AVX-512.
#if defined(PAGEFUSE_OPS_PAGEFUSE_SPARSE_MLA_ATTENTION_AMX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAGEFUSE_OPS_PAGEFUSE_SPARSE_MLA_ATTENTION_AMX_INL_H_
#undef PAGEFUSE_OPS_PAGEFUSE_SPARSE_MLA_ATTENTION_AMX_INL_H_
#else
#define PAGEFUSE_OPS_PAGEFUSE_SPARSE_MLA_ATTENTION_AMX_INL_H_
#endif

#include <algorithm>
#include <cstring>
#include <limits>

#include "hwy/highway.h"

#include "pagefuse/ops/pagefuse/attention/paged_attention_decode-inl.h"
#include "pagefuse/ops/pagefuse/attention/paged_attention_prefill-inl.h"
#include "pagefuse/ops/pagefuse/attention/paged_attention_softmax-inl.h"
#include "pagefuse/ops/pagefuse/latent/latent_rows-inl.h"
#include "pagefuse/ops/pagefuse/latent/sparse_mla_attention_amx.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DU = hn::RebindToUnsigned<DF>;
using VU = hn::Vec<DU>;

// Four rows of 16-bit words into columns [column, column + 4) of B tiles: `words` a row, a multiple
// of 32. `rows` are row_words apart.
HWY_INLINE void PackFourColumns(const uint16_t* rows, int64_t words, int64_t column,
                                uint16_t* tiles) {
  const DF df;
  const hn::Repartition<uint16_t, DF> du16;
  const auto lanes = static_cast<int64_t>(hn::Lanes(df));
  const int64_t pairs = words / 2;
  constexpr int64_t kTilePairs = kAmxDepth / 2;
  for (int64_t i = 0; i < pairs; i += lanes) {
    const auto load = [&](int64_t r) HWY_ATTR {
      return hn::BitCast(df, hn::LoadU(du16, rows + r * words + 2 * i));
    };
    auto* to = reinterpret_cast<float*>(tiles + i / kTilePairs * kAmxWords);
    TransposeFour(load(0), load(1), load(2), load(3), kAmxColumns,
                  to + i % kTilePairs * kAmxColumns + column);
  }
}

// A row of 16-bit words into row `row` of A tiles.
HWY_INLINE void PackRow(const uint16_t* from, int64_t depth_tiles, int64_t row, uint16_t* tiles) {
  const hn::CappedTag<uint16_t, kAmxDepth> du16;
  for (int64_t t = 0; t < depth_tiles; ++t) {
    for (int64_t i = 0; i < kAmxDepth; i += static_cast<int64_t>(hn::Lanes(du16))) {
      hn::Store(hn::LoadU(du16, from + t * kAmxDepth + i), du16,
                tiles + t * kAmxWords + row * kAmxDepth + i);
    }
  }
}

// Two rows, of keys 2 pair and 2 pair + 1 of a tile, into row `pair` of B tiles that lie `step`
// words apart: `value_tiles` of 16 elements.
HWY_INLINE void PackPair(const uint16_t* even, const uint16_t* odd, int64_t value_tiles,
                         int64_t step, uint16_t* tiles) {
  const hn::CappedTag<uint32_t, kAmxColumns> du;
  const hn::Rebind<uint16_t, decltype(du)> du16;
  for (int64_t j = 0; j < value_tiles; ++j) {
    auto* to = reinterpret_cast<uint32_t*>(tiles + j * step);
    for (int64_t i = 0; i < kAmxColumns; i += static_cast<int64_t>(hn::Lanes(du))) {
      const auto low = hn::PromoteTo(du, hn::LoadU(du16, even + j * kAmxColumns + i));
      const auto high = hn::PromoteTo(du, hn::LoadU(du16, odd + j * kAmxColumns + i));
      hn::Store(hn::Or(low, hn::ShiftLeft<16>(high)), du, to + i);
    }
  }
}

// Bits of x rounded to bfloat16, in the high half of each lane; the low half is anything.
HWY_INLINE VU RoundedBits(V x) {
  const DU du;
  const auto bits = hn::BitCast(du, x);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
  return hn::Add(hn::Add(bits, odd), hn::Set(du, 0x7FFF));
}

// The high halves of the lanes.
HWY_INLINE void StoreHighHalves(VU bits, uint16_t* to) {
  const hn::Rebind<uint16_t, DF> du16;
  hn::StoreU(hn::TruncateTo(du16, hn::ShiftRight<16>(bits)), du16, to);
}

// Bits of a code times its scale, bfloat16 in the high half.
template <bool round>
HWY_INLINE VU ProductBits(V x) {
  const DF df;
  if constexpr (!round) return hn::BitCast(DU(), x);
  // The payload of a code's NaN is so large that rounding would carry out of it.
  const V nan = hn::Set(df, std::numeric_limits<float>::quiet_NaN());
  return RoundedBits(hn::IfThenElse(hn::Ne(x, x), nan, x));
}

// The coded elements of a row of groups as bfloat16: a group's scale and the unit of the reader are
// one factor. Returns their number; 0 if the row's scales are too large for that.
template <class Codec>
HWY_INLINE size_t DecodeCodedWords(const Codec& codec, const typename Codec::Row& row,
                                   uint16_t* HWY_RESTRICT to) {
  using Reader = E4M3Reader<Codec>;
  const DF df;
  const size_t step = 2 * hn::Lanes(df);
  const Reader reader{codec};
  for (size_t d = 0; d < codec.coded(); d += step) {
    const float scale = codec.ScaleAt(row, d);
    if (!(scale < 0x1p119f)) return 0;
    const V factor = hn::Set(df, scale * Reader::kUnit);
    V a, b;
    reader.LoadTwo(df, row, d, a, b);
    a = hn::Mul(a, factor);
    b = hn::Mul(b, factor);
    const hn::Repartition<uint16_t, DF> du16;
    const auto low = hn::BitCast(du16, ProductBits<Codec::kRounds>(a));
    const auto high = hn::BitCast(du16, ProductBits<Codec::kRounds>(b));
    hn::StoreU(hn::ConcatOdd(du16, high, low), du16, to + d);
  }
  return codec.coded();
}

// A cache row as bfloat16, zeros behind it.
template <class Codec>
HWY_INLINE void DecodeWords(const Codec& codec, RowAddress address, size_t size, size_t words,
                            uint16_t* HWY_RESTRICT to) {
  const DF df;
  const DU du;
  const auto row = codec.Open(address);
  size_t d = 0;
  if constexpr (std::is_same_v<typename Codec::Element, Float8E4M3FN>) {
    // Groups are multiples of 32 in the published formats.
    if constexpr (E4M3Reader<Codec>::kUnit != 1) d = DecodeCodedWords(codec, row, to);
  }
  // Exact: the elements are bfloat16 numbers.
  for (; d < words; d += hn::Lanes(df)) {
    StoreHighHalves(hn::BitCast(du, LoadLatent(df, codec, row, d, size)), to + d);
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

// Softmax of the scores [kAmxTileKeys][16] of 16 query rows against a tile of `count` keys.
class TransposedSoftmax {
 public:
  // `visible`: by query row, how many keys of the tile it sees; `all`: all of them see all.
  TransposedSoftmax(const float* scores, int64_t count, float scale)
      : scores_(scores), count_(count), scale_(scale) {}

  // Lanes [lane, lane + Lanes) of the 16. Updates max, sum; sets alpha = exp(old max - new max);
  // writes weights to A tiles, zeros for keys that are not seen, up to a multiple of 32 keys.
  struct State {
    float* max;
    float* sum;
    float* alpha;
    const int32_t* visible;
    bool sees_all;
  };
  HWY_INLINE void Run(int64_t lane, const State& state, uint16_t* weights) const {
    const DF df;
    const auto seen = hn::LoadU(hn::RebindToSigned<DF>(), state.visible + lane);
    const V old_max = hn::LoadU(df, state.max + lane);
    const V max = hn::Max(old_max, state.sees_all ? Max<true>(lane, seen) : Max<false>(lane, seen));
    const V lowest = hn::Set(df, -std::numeric_limits<float>::infinity());
    // Nothing seen so far: any finite number will do, every weight is 0.
    const V base = hn::IfThenElse(hn::Eq(max, lowest), hn::Zero(df), max);
    const V alpha = Exp(df, hn::Sub(old_max, base));
    V sum = hn::Zero(df);
    constexpr int64_t kStep = 8;
    for (int64_t key = 0; key < count_; key += kAmxDepth) {
      const bool whole = state.sees_all && key + kAmxDepth <= count_;
      uint16_t* tile = weights + key / kAmxDepth * kAmxWords;
      for (int64_t k = 0; k < kAmxDepth; k += kStep) {
        auto* to = reinterpret_cast<float*>(tile) + lane * (kAmxDepth / 2) + k / 2;
        if (whole) {
          EightKeys<true>(lane, key + k, base, seen, sum, to);
        } else {
          EightKeys<false>(lane, key + k, base, seen, sum, to);
        }
      }
    }
    hn::StoreU(max, df, state.max + lane);
    hn::StoreU(alpha, df, state.alpha + lane);
    hn::StoreU(hn::MulAdd(hn::LoadU(df, state.sum + lane), alpha, sum), df, state.sum + lane);
  }

 private:
  using VI = hn::Vec<hn::RebindToSigned<DF>>;

  // The score of a key, -inf where it is not seen.
  template <bool sees_all>
  HWY_INLINE V Score(int64_t lane, int64_t key, VI seen) const {
    const DF df;
    const hn::RebindToSigned<DF> di;
    const V s = hn::Mul(hn::LoadU(df, scores_ + key * kAmxColumns + lane), hn::Set(df, scale_));
    if constexpr (sees_all) {
      return s;
    } else {
      const auto is_seen = hn::RebindMask(df, hn::Gt(seen, hn::Set(di, static_cast<int32_t>(key))));
      return hn::IfThenElse(is_seen, s, hn::Set(df, -std::numeric_limits<float>::infinity()));
    }
  }

  template <bool sees_all>
  HWY_INLINE V Max(int64_t lane, VI seen) const {
    const DF df;
    V max[4];
    for (V& m : max) m = hn::Set(df, -std::numeric_limits<float>::infinity());
    int64_t key = 0;
    for (; key + 4 <= count_; key += 4) {
      for (int64_t k = 0; k < 4; ++k) {
        max[k] = hn::Max(Score<sees_all>(lane, key + k, seen), max[k]);
      }
    }
    for (; key < count_; ++key) max[0] = hn::Max(Score<sees_all>(lane, key, seen), max[0]);
    return hn::Max(hn::Max(max[0], max[1]), hn::Max(max[2], max[3]));
  }

  template <bool sees_all>
  HWY_INLINE V Weight(int64_t lane, int64_t key, V base, VI seen) const {
    const DF df;
    if (!sees_all && key >= count_) return hn::Zero(df);
    return Exp(df, hn::Sub(Score<sees_all>(lane, key, seen), base));
  }

  // Weights of keys [key, key + 8): four words pairs in each query row's row of an A tile.
  template <bool sees_all>
  HWY_INLINE void EightKeys(int64_t lane, int64_t key, V base, VI seen, V& sum, float* to) const {
    const DF df;
    const DU du;
    V pairs[4];
    for (int64_t i = 0; i < 4; ++i) {
      const V even = Weight<sees_all>(lane, key + 2 * i, base, seen);
      const V odd = Weight<sees_all>(lane, key + 2 * i + 1, base, seen);
      sum = hn::Add(sum, hn::Add(even, odd));
      const VU low = hn::ShiftRight<16>(RoundedBits(even));
      const VU high = hn::And(RoundedBits(odd), hn::Set(du, 0xFFFF0000u));
      pairs[i] = hn::BitCast(df, hn::Or(low, high));
    }
    TransposeFour(pairs[0], pairs[1], pairs[2], pairs[3], kAmxDepth / 2, to);
  }

  const float* scores_;
  const int64_t count_;
  const float scale_;
};

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#endif  // toggle
