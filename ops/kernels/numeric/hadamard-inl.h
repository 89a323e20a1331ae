// SPDX-License-Identifier: Apache-2.0
// The Hadamard transform with vectors. Include inside a file that hwy/foreach_target.h recompiles.
#if defined(PAGEFUSE_KERNELS_NUMERIC_HADAMARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAGEFUSE_KERNELS_NUMERIC_HADAMARD_INL_H_
#undef PAGEFUSE_KERNELS_NUMERIC_HADAMARD_INL_H_
#else
#define PAGEFUSE_KERNELS_NUMERIC_HADAMARD_INL_H_
#endif

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

// Sums and differences of lanes at `distance`, a power of two below the number of lanes.
template <uint32_t distance, class DF, class V = hn::Vec<DF>>
HWY_INLINE V ButterflyLanes(DF df, V v) {
  const hn::RebindToUnsigned<DF> du;
  const auto lane = hn::Iota(du, 0);
  const auto is_first = hn::Eq(hn::And(lane, hn::Set(du, distance)), hn::Zero(du));
  // The product is exact: the second of two lanes is subtracted.
  const auto sign =
      hn::IfThenElse(hn::RebindMask(df, is_first), hn::Set(df, 1.0f), hn::Set(df, -1.0f));
  const auto other = [&]() HWY_ATTR {
    if constexpr (distance == 1) {
      return hn::Shuffle2301(v);
    } else if constexpr (distance == 2) {
      return hn::Shuffle1032(v);
    } else {
      const auto partner = hn::Xor(lane, hn::Set(du, distance));
      return hn::TableLookupLanes(v, hn::IndicesFromVec(df, partner));
    }
  };
  return hn::MulAdd(v, sign, other());
}

// Butterflies at `distance` and above within each of `count` vectors.
template <uint32_t distance, size_t count, class DF, class V>
HWY_INLINE void ButterflyWithin(DF df, V (&v)[count]) {
  if constexpr (distance < hn::MaxLanes(DF())) {
    for (size_t i = 0; i < count; ++i) v[i] = ButterflyLanes<distance>(df, v[i]);
    ButterflyWithin<2 * distance>(df, v);
  }
}

// The butterflies at distances below count * lanes of as many elements, in registers.
template <size_t count>
HWY_INLINE void ButterflyVectors(float* HWY_RESTRICT x) {
  const hn::ScalableTag<float> df;
  const size_t lanes = hn::Lanes(df);
  hn::Vec<decltype(df)> v[count];
  for (size_t i = 0; i < count; ++i) v[i] = hn::LoadU(df, x + i * lanes);
  ButterflyWithin<1>(df, v);
  for (size_t distance = 1; distance < count; distance *= 2) {
    for (size_t i = 0; i < count; ++i) {
      if ((i & distance) != 0) continue;
      const auto a = v[i];
      v[i] = hn::Add(a, v[i + distance]);
      v[i + distance] = hn::Sub(a, v[i + distance]);
    }
  }
  for (size_t i = 0; i < count; ++i) hn::StoreU(v[i], df, x + i * lanes);
}

#endif  // HWY_TARGET != HWY_SCALAR

// Butterflies of HadamardTransform; the order of additions is the same, so the result is too.
HWY_INLINE void HadamardVectors(float* HWY_RESTRICT x, size_t n) {
  const hn::ScalableTag<float> df;
  const size_t lanes = hn::Lanes(df);
  size_t first = 1;
#if HWY_TARGET != HWY_SCALAR
  constexpr size_t kAtATime = 8;
  if (n >= kAtATime * lanes) {
    for (size_t i = 0; i < n; i += kAtATime * lanes) ButterflyVectors<kAtATime>(x + i);
    first = kAtATime * lanes;
  } else if (n >= lanes) {
    for (size_t i = 0; i < n; i += lanes) ButterflyVectors<1>(x + i);
    first = lanes;
  }
#endif
  for (size_t distance = first; distance < n; distance *= 2) {
    for (size_t start = 0; start < n; start += 2 * distance) {
      size_t i = start;
      for (; i + lanes <= start + distance; i += lanes) {
        const auto a = hn::LoadU(df, x + i);
        const auto b = hn::LoadU(df, x + i + distance);
        hn::StoreU(hn::Add(a, b), df, x + i);
        hn::StoreU(hn::Sub(a, b), df, x + i + distance);
      }
      for (; i < start + distance; ++i) {
        const float a = x[i];
        const float b = x[i + distance];
        x[i] = a + b;
        x[i + distance] = a - b;
      }
    }
  }
}

// x[0, n) *= factor.
HWY_INLINE void ScaleVectors(float* HWY_RESTRICT x, size_t n, float factor) {
  const hn::ScalableTag<float> df;
  const size_t lanes = hn::Lanes(df);
  const size_t whole = n / lanes * lanes;
  for (size_t i = 0; i < whole; i += lanes) {
    hn::StoreU(hn::Mul(hn::LoadU(df, x + i), hn::Set(df, factor)), df, x + i);
  }
  for (size_t i = whole; i < n; ++i) x[i] *= factor;
}

// HadamardRotate.
HWY_INLINE void HadamardRotateVectors(float* HWY_RESTRICT x, size_t n) {
  HadamardVectors(x, n);
  ScaleVectors(x, n, 1.0f / std::sqrt(static_cast<float>(n)));
}

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#endif  // toggle
