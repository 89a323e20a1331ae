// Groups that follow one another encoded together: the same bytes as EncodeGroup one by one.
// Include inside a file that hwy/foreach_target.h recompiles.
//
// Scales of several groups are found before any code, so that the long chains from a group's
// largest magnitude to its factor run side by side; and four vectors of codes become bytes at once.
#if defined(PAGEFUSE_OPS_CACHE_GROUP_ENCODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAGEFUSE_OPS_CACHE_GROUP_ENCODE_INL_H_
#undef PAGEFUSE_OPS_CACHE_GROUP_ENCODE_INL_H_
#else
#define PAGEFUSE_OPS_CACHE_GROUP_ENCODE_INL_H_
#endif

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "hwy/highway.h"

#include "pagefuse/ops/cache/group_codec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Consecutive groups of `size` numbers.
struct GroupRun {
  size_t count = 0;
  size_t size = 0;
};

// Groups whose scales are found before their codes.
inline constexpr size_t kGroupsAtOnce = 16;
inline constexpr uint32_t kInfinityBits = 0x7F800000;

#if HWY_TARGET != HWY_SCALAR

// Bits of the largest magnitude of x[0, n) as a float, n a multiple of the lanes. NaN is above
// infinity.
template <typename From>
HWY_INLINE uint32_t LargestBits(const From* HWY_RESTRICT x, size_t n) {
  const hn::ScalableTag<float> df;
  const hn::RebindToSigned<decltype(df)> di;
  const size_t lanes = hn::Lanes(df);
  auto largest = hn::Zero(di);
  size_t i = 0;
  if constexpr (std::is_same_v<From, Bfloat16>) {
    // Two to a lane, each the high half of its float.
    const auto* words = reinterpret_cast<const uint16_t*>(x);
    const hn::Repartition<uint16_t, decltype(df)> d16;
    const auto magnitude = hn::Set(di, 0x7FFF0000);
    auto even = hn::Zero(di), odd = hn::Zero(di);
    for (; i + 2 * lanes <= n; i += 2 * lanes) {
      const auto pairs = hn::BitCast(di, hn::LoadU(d16, words + i));
      odd = hn::Max(odd, hn::And(pairs, magnitude));
      even = hn::Max(even, hn::And(hn::ShiftLeft<16>(pairs), magnitude));
    }
    largest = hn::Max(even, odd);
  }
  for (; i < n; i += lanes) {
    largest = hn::Max(largest, hn::BitCast(di, hn::Abs(LoadToFloat(df, x + i))));
  }
  return static_cast<uint32_t>(hn::GetLane(hn::MaxOfLanes(di, largest)));
}

// Stores CodeBytes(count) bytes of the bytes `codes`, one code each.
template <class F, class D8, class V8>
HWY_INLINE void StoreCodeBytes(D8 d8, V8 codes, size_t count, uint8_t* HWY_RESTRICT to) {
  constexpr size_t kMost = hn::MaxLanes(D8());
  if constexpr (F::kSignBit == 0x80) {
    if (count == hn::Lanes(d8)) return hn::StoreU(codes, d8, to);
    HWY_ALIGN uint8_t bytes[kMost];
    hn::Store(codes, d8, bytes);
    std::memcpy(to, bytes, std::min(count, kMost));
  } else {
    const hn::Repartition<uint16_t, D8> d16;
    const hn::Repartition<int16_t, D8> di16;
    const hn::Rebind<uint8_t, decltype(d16)> half;
    const auto pairs = hn::BitCast(d16, codes);
    const auto packed =
        hn::And(hn::Or(pairs, hn::ShiftRight<4>(pairs)), hn::Set(d16, uint16_t{0xFF}));
    const auto narrow = hn::DemoteTo(half, hn::BitCast(di16, packed));
    if (count == hn::Lanes(d8)) return hn::StoreU(narrow, half, to);
    HWY_ALIGN uint8_t bytes[kMost];
    hn::Store(narrow, half, bytes);
    std::memcpy(to, bytes, std::min(count / 2, kMost));
  }
}

// Codes of the groups of x, whose quotients are finite and round to at most the largest number.
// `factors`: of each group what `quotient(v, factor)` takes. Groups are multiples of the lanes.
template <class F, typename From, class Quotient>
HWY_INLINE void EncodeFiniteGroups(const From* HWY_RESTRICT x, const GroupRun& groups,
                                   const float* HWY_RESTRICT factors, uint8_t* HWY_RESTRICT codes,
                                   const Quotient& quotient) {
  const hn::ScalableTag<float> df;
  const hn::Repartition<uint8_t, decltype(df)> d8;
  const size_t lanes = hn::Lanes(df);
  const size_t total = groups.count * groups.size;
  if (groups.size % (4 * lanes) == 0) {  // four vectors have one factor
    for (size_t i = 0; i < total; i += 4 * lanes) {
      const auto factor = hn::Set(df, factors[i / groups.size]);
      const auto at = [&](size_t v)
                          HWY_ATTR { return quotient(LoadToFloat(df, x + i + v * lanes), factor); };
      StoreCodeBytes<F>(d8,
                        FiniteCodesOfFour<F, /*saturates=*/false>(df, at(0), at(1), at(2), at(3)),
                        4 * lanes, codes + (F::kSignBit == 0x80 ? i : i / 2));
    }
    return;
  }
  size_t left = groups.size;  // numbers of the current group
  for (size_t start = 0; start < total; start += 4 * lanes) {
    const auto next = [&](size_t v) HWY_ATTR {
      const size_t i = start + v * lanes;
      if (i >= total) return hn::Zero(df);
      if (left == 0) {
        ++factors;
        left = groups.size;
      }
      left -= lanes;
      return quotient(LoadToFloat(df, x + i), hn::Set(df, *factors));
    };
    const auto q0 = next(0);
    const auto q1 = next(1);
    const auto q2 = next(2);
    const auto q3 = next(3);
    StoreCodeBytes<F>(d8, FiniteCodesOfFour<F, /*saturates=*/false>(df, q0, q1, q2, q3),
                      std::min(total - start, 4 * lanes),
                      codes + (F::kSignBit == 0x80 ? start : start / 2));
  }
}

template <class F, typename From>
HWY_INLINE void EncodeUnderScales(const GroupFormat& format, const From* HWY_RESTRICT x,
                                  const GroupRun& groups, const float* HWY_RESTRICT scales,
                                  uint8_t* HWY_RESTRICT codes) {
  if (format.scale == GroupScale::kFloat) {
    return EncodeFiniteGroups<F>(x, groups, scales, codes,
                                 [](auto v, auto scale) HWY_ATTR { return hn::Div(v, scale); });
  }
  float factors[kGroupsAtOnce];
  // Exact: scales are powers of two.
  for (size_t g = 0; g < groups.count; ++g) factors[g] = 1.0f / scales[g];
  EncodeFiniteGroups<F>(x, groups, factors, codes,
                        [](auto v, auto factor) HWY_ATTR { return hn::Mul(v, factor); });
}

// Encodes at most kGroupsAtOnce groups; false, with nothing written but scales, if they are not
// usual: parts of vectors; numbers that are none, infinities, and scales without all of their
// digits, under which quotients may go past the largest number.
template <typename From>
HWY_INLINE bool EncodeUsualGroups(const GroupFormat& format, const From* HWY_RESTRICT x,
                                  const GroupRun& groups, uint8_t* HWY_RESTRICT codes,
                                  float* HWY_RESTRICT scales) {
  const hn::ScalableTag<float> df;
  if (groups.size % hn::Lanes(df) != 0) return false;
  for (size_t g = 0; g < groups.count; ++g) {
    const uint32_t bits = LargestBits(x + g * groups.size, groups.size);
    scales[g] = format.ScaleOf(std::bit_cast<float>(bits));
    if (bits >= kInfinityBits || scales[g] < std::numeric_limits<float>::min()) return false;
  }
  if (format.codes == GroupCodes::kE4M3) {
    EncodeUnderScales<E4M3FNFormat>(format, x, groups, scales, codes);
  } else {
    EncodeUnderScales<E2M1Format>(format, x, groups, scales, codes);
  }
  return true;
}

#else

template <typename From>
HWY_INLINE bool EncodeUsualGroups(const GroupFormat&, const From*, const GroupRun&, uint8_t*,
                                  float*) {
  return false;
}

#endif  // HWY_TARGET != HWY_SCALAR

// As EncodeGroup for each of the groups of x, of any type that LoadToFloat takes, whose codes
// follow one another. No pointer needs alignment; writes exactly the bytes of the codes, and
// scales[0, groups.count).
template <typename From>
HWY_INLINE void EncodeGroupsVectors(const GroupFormat& format, const From* HWY_RESTRICT x,
                                    const GroupRun& groups, uint8_t* HWY_RESTRICT codes,
                                    float* HWY_RESTRICT scales) {
  const size_t code_bytes =
      static_cast<size_t>(format.CodeBytes(static_cast<int64_t>(groups.size)));
  for (size_t first = 0; first < groups.count; first += kGroupsAtOnce) {
    const GroupRun run = {std::min(kGroupsAtOnce, groups.count - first), groups.size};
    const From* from = x + first * groups.size;
    uint8_t* to = codes + first * code_bytes;
    if (EncodeUsualGroups(format, from, run, to, scales + first)) continue;
    std::vector<float> group(groups.size);
    for (size_t g = 0; g < run.count; ++g) {
      ConvertArray(from + g * groups.size, groups.size, group.data());
      scales[first + g] =
          EncodeGroupVectors(format, group.data(), groups.size, to + g * code_bytes);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#endif  // toggle
