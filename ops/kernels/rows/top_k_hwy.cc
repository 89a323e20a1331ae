// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/ops/kernels/rows/top_k_hwy.cc"
#include "pagefuse/ops/kernels/rows/top_k_hwy.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "pagefuse/ops/kernels/numeric/compress_to-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse::onnx_ops {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using pagefuse::HWY_NAMESPACE::CompressTo;

using DF = hn::ScalableTag<float>;
using DI = hn::RebindToSigned<DF>;
using VI = hn::Vec<DI>;

// Ranks are compared as signed numbers here: RankOfFloat with its highest bit turned over.
constexpr int32_t kWorst = std::numeric_limits<int32_t>::min();
int32_t SignedRank(uint32_t rank) { return std::bit_cast<int32_t>(rank ^ 0x80000000u); }

HWY_INLINE VI RanksOf(hn::Vec<DF> x, bool largest) {
  const DF df;
  const DI di;
  const auto bits = hn::BitCast(di, hn::Add(x, hn::Zero(df)));  // -0 becomes 0
  const auto magnitude = hn::Set(di, 0x7FFFFFFF);
  const VI ordered = hn::Xor(bits, hn::And(hn::BroadcastSignBit(bits), magnitude));
  const VI ranks = hn::IfThenElse(hn::RebindMask(di, hn::IsNaN(x)), magnitude, ordered);
  return largest ? ranks : hn::Not(ranks);
}

// The elements as ranks in whole vectors, the worst rank behind the last.
HWY_INLINE void RankAll(const float* x, int64_t n, bool largest, int32_t* ranks) {
  const DF df;
  const DI di;
  const auto lanes = static_cast<int64_t>(hn::Lanes(df));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes)
    hn::Store(RanksOf(hn::LoadU(df, x + i), largest), di, ranks + i);
  if (i == n) return;
  HWY_ALIGN float rest[hn::MaxLanes(DF())] = {};
  std::copy(x + i, x + n, rest);
  const auto present = hn::FirstN(di, static_cast<size_t>(n - i));
  const VI last = RanksOf(hn::Load(df, rest), largest);
  hn::Store(hn::IfThenElse(present, last, hn::Set(di, kWorst)), di, ranks + i);
}

// A rank that `count` of the elements reach: they are taken by turns into groups, of which each has
// one of its rank or better.
HWY_INLINE int32_t RankThatReach(const int32_t* ranks, int64_t n, int64_t count) {
  const DI di;
  const auto lanes = static_cast<int64_t>(hn::Lanes(di));
  // Twice as many groups as needed: their best ones lie closer to the best of all.
  constexpr int64_t kMostGroups = 2 * kMostOfRanked;
  const int64_t vectors = std::max<int64_t>(1, (2 * count + lanes - 1) / lanes);
  const int64_t groups = vectors * lanes;
  if (n < 2 * groups || groups > kMostGroups) return kWorst;
  HWY_ALIGN int32_t best[kMostGroups];
  for (int64_t v = 0; v < groups; v += lanes) {
    VI most = hn::Load(di, ranks + v);
    for (int64_t i = v + groups; i < n; i += groups) most = hn::Max(most, hn::Load(di, ranks + i));
    hn::Store(most, di, best + v);
  }
  // The worst of the best `count` groups: so many at most are better than each of them.
  VI bound = hn::Set(di, std::numeric_limits<int32_t>::max());
  for (int64_t v = 0; v < groups; v += lanes) {
    const VI mine = hn::Load(di, best + v);
    VI better = hn::Zero(di);
    for (int64_t i = 0; i < groups; ++i) {
      better = hn::Sub(better, hn::VecFromMask(di, hn::Gt(hn::Set(di, best[i]), mine)));
    }
    const auto among = hn::Lt(better, hn::Set(di, static_cast<int32_t>(count)));
    bound = hn::Min(bound, hn::IfThenElse(among, mine, bound));
  }
  return hn::GetLane(hn::MinOfLanes(di, bound));
}

int64_t Few(const float* x, int64_t n, const RankRule& rule, RankedElements& to) {
  const DI di;
  const hn::RebindToUnsigned<DI> du;
  const auto lanes = static_cast<int64_t>(hn::Lanes(di));
  HWY_ALIGN int32_t ranks[kRankedElements + hn::MaxLanes(DI())];
  RankAll(x, n, rule.largest, ranks);
  const int32_t least = std::max(SignedRank(rule.least), RankThatReach(ranks, n, rule.count));
  int64_t taken = 0;
  for (int64_t i = 0; i < n; i += lanes) {
    const VI rank = hn::Load(di, ranks + i);
    auto takes = hn::Not(hn::Lt(rank, hn::Set(di, least)));
    if (n - i < lanes) takes = hn::And(takes, hn::FirstN(di, static_cast<size_t>(n - i)));
    const auto index = hn::Iota(du, static_cast<uint32_t>(i));
    const auto turned = hn::Xor(hn::BitCast(du, rank), hn::Set(du, 0x80000000u));
    const auto unsigned_takes = hn::RebindMask(du, takes);
    CompressTo(du, turned, unsigned_takes, to.ranks + taken);
    taken += static_cast<int64_t>(CompressTo(du, index, unsigned_takes, to.indices + taken));
  }
  return taken;
}

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse::onnx_ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagefuse::onnx_ops {

HWY_EXPORT(Few);

uint32_t RankOfFloat(float x, bool largest) {
  uint32_t bits = std::bit_cast<uint32_t>(x + 0.0f);  // -0 becomes 0
  bits = x != x ? ~uint32_t{0} : (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
  return largest ? bits : ~bits;
}

int64_t FewRanked(const float* x, int64_t n, const RankRule& rule, RankedElements& to) {
  return HWY_DYNAMIC_DISPATCH(Few)(x, n, rule, to);
}

}  // namespace pagefuse::onnx_ops
#endif  // HWY_ONCE
