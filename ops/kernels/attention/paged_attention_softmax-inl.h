// SPDX-License-Identifier: Apache-2.0
// Scores of a query row to softmax weights, tile by tile: scale, soft cap, bias, mask, online
// maximum and sum. Include inside a file that hwy/foreach_target.h recompiles.
#if defined(PAGEFUSE_KERNELS_ATTENTION_PAGED_ATTENTION_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAGEFUSE_KERNELS_ATTENTION_PAGED_ATTENTION_SOFTMAX_INL_H_
#undef PAGEFUSE_KERNELS_ATTENTION_PAGED_ATTENTION_SOFTMAX_INL_H_
#else
#define PAGEFUSE_KERNELS_ATTENTION_PAGED_ATTENTION_SOFTMAX_INL_H_
#endif

#include <algorithm>
#include <limits>
#include <span>

#include "hwy/highway.h"

#include "pagefuse/ops/kernels/attention/paged_attention_hwy.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// e^x for x <= 88, within 1.5 units in the last place; 0 below -87 (where floats become subnormal),
// NaN for NaN.
template <class DF, class V = hn::Vec<DF>>
HWY_INLINE V Exp(DF df, V x) {
  const hn::RebindToSigned<DF> di;
  // x = n ln2 + r, |r| <= ln2 / 2. Added to 1.5 * 2^23 a number of that size leaves its nearest
  // integer in the low bits: n + 127 here, the exponent bits of 2^n. The first part of ln2 has few
  // bits, so that n times it is exact (Cody and Waite).
  const auto rounder = hn::Set(df, 0x1.8p23f + 127);
  const auto rounded = hn::MulAdd(x, hn::Set(df, 1.44269504f), rounder);
  const auto n = hn::Sub(rounded, rounder);
  auto r = hn::NegMulAdd(n, hn::Set(df, 0.693359375f), x);
  r = hn::NegMulAdd(n, hn::Set(df, -2.12194440e-4f), r);
  // Minimax polynomial of (e^r - 1 - r) / r^2.
  auto p = hn::Set(df, 1.9875691e-4f);
  p = hn::MulAdd(p, r, hn::Set(df, 1.3981999e-3f));
  p = hn::MulAdd(p, r, hn::Set(df, 8.3334519e-3f));
  p = hn::MulAdd(p, r, hn::Set(df, 4.1665796e-2f));
  p = hn::MulAdd(p, r, hn::Set(df, 1.6666665e-1f));
  p = hn::MulAdd(p, r, hn::Set(df, 0.5f));
  p = hn::Add(hn::MulAdd(p, hn::Mul(r, r), r), hn::Set(df, 1.0f));
  const auto power = hn::BitCast(df, hn::ShiftLeft<23>(hn::BitCast(di, rounded)));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(df, -87.0f)), hn::Mul(p, power));
}

// tanh(x), within 4 units in the last place; finite for every x.
template <class DF, class V = hn::Vec<DF>>
HWY_INLINE V Tanh(DF df, V x) {
  const auto a = hn::Abs(x);
  // Near 0 the quotient below cancels: the Taylor series up to x^13, whose next term is below 4e-9
  // of the result there.
  const auto y = hn::Mul(x, x);
  auto t = hn::Set(df, 3.5921280e-3f);
  t = hn::MulAdd(t, y, hn::Set(df, -8.8632355e-3f));
  t = hn::MulAdd(t, y, hn::Set(df, 2.1869488e-2f));
  t = hn::MulAdd(t, y, hn::Set(df, -5.3968254e-2f));
  t = hn::MulAdd(t, y, hn::Set(df, 1.3333333e-1f));
  t = hn::MulAdd(t, y, hn::Set(df, -3.3333333e-1f));
  const auto near = hn::MulAdd(hn::Mul(x, y), t, x);
  const auto one = hn::Set(df, 1.0f);
  const auto e = Exp(df, hn::Mul(a, hn::Set(df, -2.0f)));
  const auto far = hn::CopySign(hn::Div(hn::Sub(one, e), hn::Add(one, e)), x);
  return hn::IfThenElse(hn::Lt(a, hn::Set(df, 0.4f)), near, far);
}

// What turns a dot product of one query row into a logit.
struct ScoreRow {
  float factor = 1;
  float softcap = 0;
  // By score of the tile: the key's place in the tile, and its scales.
  const int32_t* key_offsets = nullptr;
  const float* key_scales = nullptr;
  const float* value_scales = nullptr;
  const float* value_offsets = nullptr;  // element = code * scale + offset
  bool has_alibi = false, alibi_sqrt = false;
  float slope = 0;
  int64_t context = 0, position = 0;
  int64_t alibi_origin = 0;        // where linear biases are 0
  const float* qq_bias = nullptr;  // row of this query
  int64_t qq_size = 0;
  std::span<const KeyInterval> visible;
};

// Sets what is the same for all tiles; key and value scales change with the tile.
HWY_INLINE ScoreRow MakeScoreRow(const PagedAttentionProblem& p, int64_t b, int64_t query,
                                 int64_t head) {
  ScoreRow row;
  row.factor = ScoreFactor(p);
  row.softcap = p.rules.softcap;
  row.has_alibi = p.alibi_slopes != nullptr;
  row.alibi_sqrt = p.rules.use_alibi_sqrt;
  if (row.has_alibi) row.slope = p.alibi_slopes[head];
  row.context = p.context(b);
  row.position = row.context + query;
  // The op counts from the context's end, which is another place for each piece that the query may come
  // in. Softmax takes what is the same for all keys out again, and bits are the same where nothing
  // changes: from the query itself, unless a sink or the sum of exponentials sees the difference.
  row.alibi_origin = p.head_sink == nullptr && p.lse == nullptr ? row.position : row.context;
  if (p.qq_bias != nullptr) {
    row.qq_bias = p.qq_bias + query * p.qq_size;
    row.qq_size = p.qq_size;
  }
  return row;
}

// Running state of a row's softmax.
struct SoftmaxState {
  float max = -std::numeric_limits<float>::infinity();
  float sum = 0;
  float offset = 0;  // sum of weights times value offsets: part of every element of the output
};

// Positions of the keys of scores i...
template <class DI>
HWY_INLINE hn::Vec<DI> KeyLanes(DI di, const ScoreRow& row, int64_t tile_begin, size_t i) {
  return hn::Add(hn::LoadU(di, row.key_offsets + i), hn::Set(di, static_cast<int32_t>(tile_begin)));
}

// Logits of the lanes at `s`, keys tile_begin + i...
template <class DF, class V = hn::Vec<DF>>
HWY_INLINE V Logits(DF df, const ScoreRow& row, const float* HWY_RESTRICT s, int64_t tile_begin,
                    size_t i) {
  auto factor = hn::Set(df, row.factor);
  if (row.key_scales != nullptr) factor = hn::Mul(factor, hn::LoadU(df, row.key_scales + i));
  auto x = hn::Mul(hn::LoadU(df, s + i), factor);
  if (row.softcap > 0) {
    const auto cap = hn::Set(df, row.softcap);
    x = hn::Mul(cap, Tanh(df, hn::Div(x, cap)));
  }
  if (row.has_alibi) {
    const hn::RebindToSigned<DF> di;
    const auto key = KeyLanes(di, row, tile_begin, i);
    const auto slope = hn::Set(df, row.slope);
    if (row.alibi_sqrt) {
      const auto back =
          hn::ConvertTo(df, hn::Sub(hn::Set(di, static_cast<int32_t>(row.position)), key));
      x = hn::NegMulAdd(slope, hn::Sqrt(hn::Max(back, hn::Zero(df))), x);
    } else {
      const auto relative =
          hn::ConvertTo(df, hn::Sub(key, hn::Set(di, static_cast<int32_t>(row.alibi_origin))));
      x = hn::MulAdd(slope, relative, x);
    }
  }
  return x;
}

HWY_INLINE void AddQqBias(const ScoreRow& row, float* HWY_RESTRICT s, int64_t tile_begin,
                          size_t first, size_t last) {
  for (size_t i = first; i < last; ++i) {
    const int64_t relative = tile_begin + row.key_offsets[i] - row.context;
    if (relative >= 0 && relative < row.qq_size) s[i] += row.qq_bias[relative];
  }
}

// True if one interval holds all keys of the tile's [first, last).
HWY_INLINE bool SeesAll(const ScoreRow& row, int64_t begin, int64_t end) {
  for (const KeyInterval& interval : row.visible) {
    if (interval.begin <= begin && end <= interval.end) return true;
  }
  return false;
}

// Lanes of keys tile_begin + i... that the row sees.
template <class DF>
HWY_INLINE hn::Mask<DF> VisibleLanes(DF df, const ScoreRow& row, int64_t tile_begin, size_t i) {
  const hn::RebindToSigned<DF> di;
  const auto key = KeyLanes(di, row, tile_begin, i);
  auto seen = hn::VecFromMask(di, hn::Ne(key, key));
  for (const KeyInterval& interval : row.visible) {
    const auto after = hn::Gt(key, hn::Set(di, static_cast<int32_t>(interval.begin - 1)));
    const auto before = hn::Lt(key, hn::Set(di, static_cast<int32_t>(interval.end)));
    seen = hn::Or(seen, hn::VecFromMask(di, hn::And(after, before)));
  }
  return hn::RebindMask(df, hn::MaskFromVec(seen));
}

// Turns dot products s[first, last) of keys tile_begin + first... into weights: e_j = exp(S_j -
// max), times the key's value scale; 0 for keys that the row does not see, whatever s holds there.
// first and last are multiples of the vector length. Returns the factor exp(old max - new max) for
// what was summed before.
HWY_INLINE float SoftmaxTile(const ScoreRow& row, int64_t tile_begin, size_t first, size_t last,
                             float* HWY_RESTRICT s, SoftmaxState& state) {
  const hn::ScalableTag<float> df;
  const size_t lanes = hn::Lanes(df);
  const auto minus_infinity = hn::Set(df, -std::numeric_limits<float>::infinity());
  const bool sees_all = SeesAll(row, tile_begin + static_cast<int64_t>(first),
                                tile_begin + static_cast<int64_t>(last));
  const bool has_qq_bias = row.qq_bias != nullptr;
  if (has_qq_bias) {
    for (size_t i = first; i < last; i += lanes) {
      hn::StoreU(Logits(df, row, s, tile_begin, i), df, s + i);
    }
    AddQqBias(row, s, tile_begin, first, last);
  }
  auto max = minus_infinity;
  for (size_t i = first; i < last; i += lanes) {
    auto x = has_qq_bias ? hn::LoadU(df, s + i) : Logits(df, row, s, tile_begin, i);
    if (!sees_all) x = hn::IfThenElse(VisibleLanes(df, row, tile_begin, i), x, minus_infinity);
    hn::StoreU(x, df, s + i);
    max = hn::Max(x, max);  // x86 returns the second operand for NaN, which then shows in the sum
  }
  const float new_max = std::max(state.max, hn::GetLane(hn::MaxOfLanes(df, max)));
  // Nothing to be seen so far: any finite number will do, every weight is 0.
  const float base = new_max == -std::numeric_limits<float>::infinity() ? 0.0f : new_max;
  const auto base_v = hn::Set(df, base);
  auto sum = hn::Zero(df);
  auto offset = hn::Zero(df);
  for (size_t i = first; i < last; i += lanes) {
    const auto x = hn::LoadU(df, s + i);
    // A scale of a key that the row does not see may be NaN; one that it sees counts however small
    // its weight is.
    const auto seen = hn::Ne(x, minus_infinity);
    auto e = Exp(df, hn::Sub(x, base_v));
    sum = hn::Add(sum, e);
    if (row.value_offsets != nullptr) {
      const auto shifted = hn::Mul(e, hn::LoadU(df, row.value_offsets + i));
      offset = hn::Add(offset, hn::IfThenElseZero(seen, shifted));
    }
    if (row.value_scales != nullptr) {
      const auto scaled = hn::Mul(e, hn::LoadU(df, row.value_scales + i));
      e = hn::IfThenElseZero(seen, scaled);
    }
    hn::StoreU(e, df, s + i);
  }
  // Mostly no key is larger than those before.
  const float alpha =
      state.max == base ? 1.0f : hn::GetLane(Exp(df, hn::Set(df, state.max - base)));
  state.sum = state.sum * alpha + hn::GetLane(hn::SumOfLanes(df, sum));
  if (row.value_offsets != nullptr) {
    state.offset = state.offset * alpha + hn::GetLane(hn::SumOfLanes(df, offset));
  }
  state.max = new_max;
  return alpha;
}

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#endif  // toggle
