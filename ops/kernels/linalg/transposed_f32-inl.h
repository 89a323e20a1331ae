// SPDX-License-Identifier: Apache-2.0
// Rows of a transposed W read so that lanes stand for its columns. For foreach_target.
#if defined(PAGEFUSE_KERNELS_LINALG_TRANSPOSED_F32_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAGEFUSE_KERNELS_LINALG_TRANSPOSED_F32_INL_H_
#undef PAGEFUSE_KERNELS_LINALG_TRANSPOSED_F32_INL_H_
#else
#define PAGEFUSE_KERNELS_LINALG_TRANSPOSED_F32_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Four floats of each of some rows, `stride` floats apart: block b of 128 bits has those of row
// 4 * b.
template <class D>
HWY_INLINE hn::Vec<D> LoadFours(D d, const float* at, int64_t stride) {
  constexpr int64_t kLanes = hn::MaxLanes(D());
  if constexpr (kLanes == 4) {
    return hn::LoadU(d, at);
  } else {
    const hn::Half<D> half;
    return hn::Combine(d, LoadFours(half, at + kLanes / 2 * stride, stride),
                       LoadFours(half, at, stride));
  }
}

// The same of rows that lie anywhere: load(d4, c) gives four of row c, in 128 bits.
template <class D, class Load>
HWY_INLINE hn::Vec<D> LoadFoursOf(D d, const Load& load, int64_t c) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    return load(d, c);
  } else {
    const hn::Half<D> half;
    return hn::Combine(d, LoadFoursOf(half, load, c + hn::MaxLanes(D()) / 2),
                       LoadFoursOf(half, load, c));
  }
}

// Transposes the four by four lanes of 32 bits that each 128-bit block of four vectors has.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void TransposePieces(D d, V (&rows)[4]) {
  const hn::Repartition<uint64_t, D> pairs;
  const auto low01 = hn::BitCast(pairs, hn::InterleaveLower(d, rows[0], rows[1]));
  const auto high01 = hn::BitCast(pairs, hn::InterleaveUpper(d, rows[0], rows[1]));
  const auto low23 = hn::BitCast(pairs, hn::InterleaveLower(d, rows[2], rows[3]));
  const auto high23 = hn::BitCast(pairs, hn::InterleaveUpper(d, rows[2], rows[3]));
  rows[0] = hn::BitCast(d, hn::InterleaveLower(pairs, low01, low23));
  rows[1] = hn::BitCast(d, hn::InterleaveUpper(pairs, low01, low23));
  rows[2] = hn::BitCast(d, hn::InterleaveLower(pairs, high01, high23));
  rows[3] = hn::BitCast(d, hn::InterleaveUpper(pairs, high01, high23));
}

// out[i] lane c = at[c * stride + i]: four elements of as many rows as a vector has lanes.
template <class D>
HWY_INLINE void LoadTransposed(D d, const float* at, int64_t stride, hn::Vec<D> (&out)[4]) {
  for (int64_t i = 0; i < 4; ++i) out[i] = LoadFours(d, at + i * stride, stride);
  TransposePieces(d, out);
}

// Lane c = at[c * stride].
template <class D>
HWY_INLINE hn::Vec<D> LoadEach(D d, const float* at, int64_t stride) {
  constexpr int64_t kLanes = hn::MaxLanes(D());
  HWY_ALIGN float lanes[kLanes];
  for (int64_t c = 0; c < kLanes; ++c) lanes[c] = at[c * stride];
  return hn::Load(d, lanes);
}

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#endif  // toggle
