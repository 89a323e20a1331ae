// SPDX-License-Identifier: Apache-2.0
// All lanes of a vector made one: their sum, their largest. Of four vectors at once, in about the
// instructions that one takes. Include inside a file that hwy/foreach_target.h recompiles; not
// for HWY_SCALAR.
#if defined(PAGEFUSE_KERNELS_NUMERIC_FOLD_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAGEFUSE_KERNELS_NUMERIC_FOLD_LANES_INL_H_
#undef PAGEFUSE_KERNELS_NUMERIC_FOLD_LANES_INL_H_
#else
#define PAGEFUSE_KERNELS_NUMERIC_FOLD_LANES_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

// What two lanes become.
struct LaneSum {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Add(a, b);
  }
};
struct LaneMax {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Max(a, b);
  }
};

// Lanes at the same place of each 128-bit block made one.
template <class Fold, class D, class V = hn::Vec<D>>
HWY_INLINE hn::Vec<hn::Full128<hn::TFromD<D>>> FoldBlocks(D d, V v) {
  if constexpr (hn::MaxLanes(d) * sizeof(hn::TFromD<D>) <= 16) {
    return v;
  } else {
    const hn::Half<D> half;
    return FoldBlocks<Fold>(half, Fold()(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}

// Lane i of each 128-bit block is that block's lanes of the ith vector made one, in an order that
// does not depend on i. Lanes are of 32 bits.
template <class Fold, class D, class V = hn::Vec<D>>
HWY_INLINE V FoldPieces(D d32, V a, V b, V c, V d) {
  const hn::Repartition<uint64_t, D> du64;
  const Fold fold;
  const V ab = fold(hn::InterleaveLower(d32, a, b), hn::InterleaveUpper(d32, a, b));
  const V cd = fold(hn::InterleaveLower(d32, c, d), hn::InterleaveUpper(d32, c, d));
  const auto ab64 = hn::BitCast(du64, ab);
  const auto cd64 = hn::BitCast(du64, cd);
  return fold(hn::BitCast(d32, hn::InterleaveLower(du64, ab64, cd64)),
              hn::BitCast(d32, hn::InterleaveUpper(du64, ab64, cd64)));
}

// Lane i is all lanes of the ith vector made one, in such an order.
template <class Fold, class D, class V = hn::Vec<D>>
HWY_INLINE hn::Vec<hn::Full128<hn::TFromD<D>>> FoldFour(D d32, V a, V b, V c, V d) {
  return FoldBlocks<Fold>(d32, FoldPieces<Fold>(d32, a, b, c, d));
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#endif  // toggle
