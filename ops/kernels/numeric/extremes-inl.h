// SPDX-License-Identifier: Apache-2.0
// Smallest and largest numbers of an array. Include inside a file that hwy/foreach_target.h
// recompiles.
#if defined(PAGEFUSE_KERNELS_NUMERIC_EXTREMES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAGEFUSE_KERNELS_NUMERIC_EXTREMES_INL_H_
#undef PAGEFUSE_KERNELS_NUMERIC_EXTREMES_INL_H_
#else
#define PAGEFUSE_KERNELS_NUMERIC_EXTREMES_INL_H_
#endif

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"

#include "pagefuse/ops/kernels/numeric/convert-inl.h"
#include "pagefuse/ops/kernels/numeric/fold_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline constexpr uint32_t kInfinityBits = 0x7F800000;
// Accumulators: one would wait for itself.
inline constexpr size_t kExtremes = 4;

#if HWY_TARGET != HWY_SCALAR

// Bits of largest magnitudes of x[0, n) as floats: a lane has that of some of the numbers, all
// lanes together of all. n is a multiple of the lanes. NaN is above infinity.
template <class DI, typename From>
HWY_INLINE hn::Vec<DI> LargestByLane(DI di, const From* HWY_RESTRICT x, size_t n) {
  const hn::RebindToFloat<DI> df;
  const size_t lanes = hn::Lanes(di);
  auto largest = hn::Zero(di);
  size_t i = 0;
  if constexpr (std::is_same_v<From, Bfloat16>) {
    // Two to a lane, each the high half of its float.
    const auto* words = reinterpret_cast<const int16_t*>(x);
    const hn::Repartition<int16_t, DI> d16;
    const auto magnitude = hn::Set(d16, 0x7FFF);
    auto words_largest = hn::Zero(d16);
    for (; i + 2 * lanes <= n; i += 2 * lanes) {
      words_largest = hn::Max(words_largest, hn::And(hn::LoadU(d16, words + i), magnitude));
    }
    const auto pairs = hn::BitCast(di, words_largest);
    largest = hn::Max(hn::ShiftLeft<16>(pairs), hn::And(pairs, hn::Set(di, 0x7FFF0000)));
  }
  for (; i < n; i += lanes) {
    largest = hn::Max(largest, hn::BitCast(di, hn::Abs(LoadToFloat(df, x + i))));
  }
  return largest;
}

// Bits of the largest magnitude of x[0, n) as a float; n and NaN as above.
template <typename From>
HWY_INLINE uint32_t LargestBits(const From* HWY_RESTRICT x, size_t n) {
  const hn::ScalableTag<int32_t> di;
  return static_cast<uint32_t>(hn::GetLane(hn::MaxOfLanes(di, LargestByLane(di, x, n))));
}

// LargestBits of four rows of n, row r at row_at(r), to to[0, 4), in fewer instructions.
template <class RowAt>
HWY_INLINE void LargestBitsOfFour(const RowAt& row_at, size_t n, uint32_t* HWY_RESTRICT to) {
  const hn::ScalableTag<int32_t> di;
  const hn::Full128<int32_t> di4;
  const auto row = [&](size_t r) HWY_ATTR { return LargestByLane(di, row_at(r), n); };
  const auto largest = FoldFour<LaneMax>(di, row(0), row(1), row(2), row(3));
  hn::StoreU(largest, di4, reinterpret_cast<int32_t*>(to));
}

#endif

// Largest magnitude of x[0, n) but for NaN.
template <typename From>
HWY_INLINE float LargestMagnitude(const From* HWY_RESTRICT x, size_t n) {
  const hn::ScalableTag<float> df;
  const size_t lanes = hn::Lanes(df);
#if HWY_TARGET != HWY_SCALAR
  if (std::is_same_v<From, Bfloat16> && n % lanes == 0) {
    const uint32_t bits = LargestBits(x, n);
    if (bits <= kInfinityBits) return std::bit_cast<float>(bits);
  }
#endif
  // x86 takes the second operand where one is NaN.
  const auto take = [&](auto v, auto& largest) HWY_ATTR { largest = hn::Max(hn::Abs(v), largest); };
  hn::Vec<decltype(df)> largest[kExtremes];
  for (auto& v : largest) v = hn::Zero(df);
  size_t i = 0;
  for (; i + kExtremes * lanes <= n; i += kExtremes * lanes) {
    for (size_t k = 0; k < kExtremes; ++k) take(LoadToFloat(df, x + i + k * lanes), largest[k]);
  }
  for (; i + lanes <= n; i += lanes) take(LoadToFloat(df, x + i), largest[0]);
  if (i < n) take(LoadToFloatN(df, x + i, n - i), largest[0]);
  const auto all = hn::Max(hn::Max(largest[0], largest[1]), hn::Max(largest[2], largest[3]));
  return hn::GetLane(hn::MaxOfLanes(df, all));
}

struct Range {
  float low, high;
};

// Of x[0, n), n > 0, but for NaN; NaN if the first is.
template <typename From>
HWY_INLINE Range RangeOf(const From* HWY_RESTRICT x, size_t n) {
  const hn::ScalableTag<float> df;
  const size_t lanes = hn::Lanes(df);
  const auto first = static_cast<float>(x[0]);
  if (first != first) return {first, first};
  hn::Vec<decltype(df)> low[kExtremes], high[kExtremes];
  for (size_t k = 0; k < kExtremes; ++k) low[k] = high[k] = hn::Set(df, first);
  // x86 takes the second operand where one is NaN.
  const auto take = [&](auto v, size_t k) HWY_ATTR {
    low[k] = hn::Min(v, low[k]);
    high[k] = hn::Max(v, high[k]);
  };
  size_t i = 0;
  for (; i + kExtremes * lanes <= n; i += kExtremes * lanes) {
    for (size_t k = 0; k < kExtremes; ++k) take(LoadToFloat(df, x + i + k * lanes), k);
  }
  for (; i + lanes <= n; i += lanes) take(LoadToFloat(df, x + i), 0);
  const auto lows = hn::Min(hn::Min(low[0], low[1]), hn::Min(low[2], low[3]));
  const auto highs = hn::Max(hn::Max(high[0], high[1]), hn::Max(high[2], high[3]));
  Range range = {hn::GetLane(hn::MinOfLanes(df, lows)), hn::GetLane(hn::MaxOfLanes(df, highs))};
  for (; i < n; ++i) {
    const auto v = static_cast<float>(x[i]);
    range.low = v < range.low ? v : range.low;
    range.high = v > range.high ? v : range.high;
  }
  return range;
}

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#endif  // toggle
