// SPDX-License-Identifier: Apache-2.0
// The low bytes of 32-bit lanes one behind the other. Include inside a file that
// hwy/foreach_target.h recompiles.
#if defined(PAGEFUSE_KERNELS_NUMERIC_LANE_BYTES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAGEFUSE_KERNELS_NUMERIC_LANE_BYTES_INL_H_
#undef PAGEFUSE_KERNELS_NUMERIC_LANE_BYTES_INL_H_
#else
#define PAGEFUSE_KERNELS_NUMERIC_LANE_BYTES_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

// Byte v of each lane is of vector v: those of vector 0 first, then those of vector 1, and so on.
template <class DU, class V = hn::Vec<DU>>
HWY_INLINE hn::Vec<hn::Repartition<uint8_t, DU>> BytesByVector(DU du, V lanes) {
  const hn::Repartition<uint8_t, DU> d8;
  const hn::RebindToSigned<DU> di;
  // Four lanes by four bytes change places within 128 bits, then the words across them.
  HWY_ALIGN static constexpr uint8_t kAcross[16] = {0, 4, 8,  12, 1, 5, 9,  13,
                                                    2, 6, 10, 14, 3, 7, 11, 15};
  const auto within = hn::TableLookupBytes(hn::BitCast(d8, lanes), hn::LoadDup128(d8, kAcross));
  const size_t parts = hn::Lanes(du) / 4;
  if (parts == 1) return within;
  HWY_ALIGN int32_t order[hn::MaxLanes(di)];
  for (size_t i = 0; i < hn::Lanes(du); ++i) {
    order[i] = static_cast<int32_t>(4 * (i % parts) + i / parts);
  }
  return hn::BitCast(d8,
                     hn::TableLookupLanes(hn::BitCast(du, within), hn::SetTableIndices(du, order)));
}

// Lanes whose byte v is the low byte of vector v; anything may be above that.
template <class DU, class V = hn::Vec<DU>>
HWY_INLINE V JoinLowBytes(DU du, V v0, V v1, V v2, V v3) {
  const auto select = [&](uint32_t mask, auto yes, auto no)
                          HWY_ATTR { return hn::IfVecThenElse(hn::Set(du, mask), yes, no); };
  const auto low = select(0xFFu, v0, hn::ShiftLeft<8>(v1));
  const auto high = select(0xFFFFFFu, hn::ShiftLeft<16>(v2), hn::ShiftLeft<24>(v3));
  return select(0xFFFFu, low, high);
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#endif  // toggle
