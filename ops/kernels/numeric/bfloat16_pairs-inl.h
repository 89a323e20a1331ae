// Pairs of neighbours of bfloat16 rows as floats, where vectors have more than a lane. Include
// inside a file that hwy/foreach_target.h recompiles.
#if defined(PAGEFUSE_KERNELS_NUMERIC_BFLOAT16_PAIRS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAGEFUSE_KERNELS_NUMERIC_BFLOAT16_PAIRS_INL_H_
#undef PAGEFUSE_KERNELS_NUMERIC_BFLOAT16_PAIRS_INL_H_
#else
#define PAGEFUSE_KERNELS_NUMERIC_BFLOAT16_PAIRS_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"

#include "pagefuse/kernels/numeric/small_float.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

// even = p[0], p[2], ... and odd = p[1], p[3], ..., each the upper half of its float.
template <class DF, class V>
HWY_INLINE void LoadBfloat16Pairs(DF df, const Bfloat16* HWY_RESTRICT p, V& even, V& odd) {
  const hn::RebindToUnsigned<DF> du;
  const hn::Repartition<uint16_t, DF> du16;
  const auto pairs = hn::BitCast(du, hn::LoadU(du16, reinterpret_cast<const uint16_t*>(p)));
  even = hn::BitCast(df, hn::ShiftLeft<16>(pairs));
  odd = hn::BitCast(df, hn::And(pairs, hn::Set(du, 0xFFFF0000u)));
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#endif  // toggle
