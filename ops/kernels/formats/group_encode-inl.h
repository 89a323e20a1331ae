// SPDX-License-Identifier: Apache-2.0
// Groups that follow one another encoded together: the same bytes as EncodeGroup one by one.
// Include inside a file that hwy/foreach_target.h recompiles.
//
// Scales of several groups are found before any code, so that the long chains from a group's
// largest magnitude to its factor run side by side; and four vectors of codes become bytes at once.
#if defined(PAGEFUSE_KERNELS_FORMATS_GROUP_ENCODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAGEFUSE_KERNELS_FORMATS_GROUP_ENCODE_INL_H_
#undef PAGEFUSE_KERNELS_FORMATS_GROUP_ENCODE_INL_H_
#else
#define PAGEFUSE_KERNELS_FORMATS_GROUP_ENCODE_INL_H_
#endif

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "hwy/highway.h"

#include "pagefuse/ops/kernels/formats/e2m1_words-inl.h"
#include "pagefuse/ops/kernels/formats/group_codec-inl.h"
#include "pagefuse/ops/kernels/formats/pack_codes-inl.h"
#include "pagefuse/ops/kernels/numeric/extremes-inl.h"

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

#if HWY_TARGET != HWY_SCALAR

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
    if (count == hn::Lanes(d8)) return StorePacked<4>(d8, codes, to);
    HWY_ALIGN uint8_t bytes[kMost];
    StorePacked<4>(d8, codes, bytes);
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
  // Four vectors that begin at x[i], two by two under their factors.
  const auto encode = [&](size_t i, float first, float second) HWY_ATTR {
    const auto at = [&](size_t v, float factor) HWY_ATTR {
      return quotient(LoadToFloat(df, x + i + v * lanes), hn::Set(df, factor));
    };
    StoreCodeBytes<F>(d8,
                      FiniteCodesOfFour<F, /*saturates=*/false>(df, at(0, first), at(1, first),
                                                                at(2, second), at(3, second)),
                      4 * lanes, codes + (F::kSignBit == 0x80 ? i : i / 2));
  };
  if (groups.size % (4 * lanes) == 0) {
    for (size_t i = 0; i < total; ++factors) {
      const size_t end = i + groups.size;
      for (; i < end; i += 4 * lanes) encode(i, *factors, *factors);
    }
    return;
  }
  if (groups.size == 2 * lanes && groups.count % 2 == 0) {
    for (size_t i = 0; i < total; i += 4 * lanes, factors += 2) encode(i, factors[0], factors[1]);
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

#if PF_HAS_BYTE_TABLES

// EncodeUnderScales of bfloat16 numbers as e2m1 by lookup; false, with nothing written, if that
// does not take them.
HWY_INLINE bool EncodeE2M1Words(const Bfloat16* HWY_RESTRICT x, const GroupRun& groups,
                                const float* HWY_RESTRICT scales, uint8_t* HWY_RESTRICT codes) {
  constexpr size_t kNumbers = 64;  // at once, of one scale or two
  const size_t total = groups.count * groups.size;
  if (groups.size % (kNumbers / 2) != 0 || total % kNumbers != 0) return false;
  if (!std::all_of(scales, scales + groups.count, E2M1Words::Takes)) return false;
  const E2M1Words words;
  const size_t halves = groups.size / (kNumbers / 2);  // of such numbers in a group
  for (size_t i = 0; i < total; i += kNumbers) {
    const size_t half = i / (kNumbers / 2);
    StoreCodeBytes<E2M1Format>(
        hn::Full512<uint8_t>(),
        words.Encode(x + i, scales[half / halves], scales[(half + 1) / halves]), kNumbers,
        codes + i / 2);
  }
  return true;
}

#endif

template <class F, typename From>
HWY_INLINE void EncodeUnderScales(const GroupFormat& format, const From* HWY_RESTRICT x,
                                  const GroupRun& groups, const float* HWY_RESTRICT scales,
                                  uint8_t* HWY_RESTRICT codes) {
  if (format.scale == GroupScale::kFloat) {
    return EncodeFiniteGroups<F>(x, groups, scales, codes,
                                 [](auto v, auto scale) HWY_ATTR { return hn::Div(v, scale); });
  }
#if PF_HAS_BYTE_TABLES
  if constexpr (std::is_same_v<F, E2M1Format> && std::is_same_v<From, Bfloat16>) {
    if (EncodeE2M1Words(x, groups, scales, codes)) return;
  }
#endif
  float factors[kGroupsAtOnce];
  // Exact: scales are powers of two.
  for (size_t g = 0; g < groups.count; ++g) factors[g] = 1.0f / scales[g];
  EncodeFiniteGroups<F>(x, groups, factors, codes,
                        [](auto v, auto factor) HWY_ATTR { return hn::Mul(v, factor); });
}

// Scales of kGroupsAtOnce groups whose largest magnitudes have these bits: ScaleOf of each. False
// if one is not usual (FindUsualScales).
HWY_INLINE bool UsualScales(const GroupFormat& format, const uint32_t* HWY_RESTRICT bits,
                            float* HWY_RESTRICT scales) {
  const hn::CappedTag<float, kGroupsAtOnce> df;
  const hn::RebindToSigned<decltype(df)> di;
  const auto floor = hn::Set(df, format.floor);
  const auto largest_code = hn::Set(df, format.LargestCode());
  const auto infinity = hn::Set(di, static_cast<int32_t>(kInfinityBits));
  const auto normal = hn::Set(df, std::numeric_limits<float>::min());
  auto usual = hn::Eq(infinity, infinity);
  for (size_t g = 0; g < kGroupsAtOnce; g += hn::Lanes(df)) {
    const auto amax = hn::BitCast(di, hn::LoadU(hn::RebindToUnsigned<decltype(df)>(), bits + g));
    auto scale = hn::Div(hn::Max(hn::BitCast(df, amax), floor), largest_code);
    usual =
        hn::And(usual, hn::And(hn::Lt(amax, infinity), hn::RebindMask(di, hn::Ge(scale, normal))));
    if (format.scale != GroupScale::kFloat) {
      // The power of two that is not less; it stays finite, divided by the largest code.
      const auto up = hn::Add(hn::BitCast(di, scale), hn::Set(di, 0x7FFFFF));
      scale = hn::BitCast(df, hn::And(up, infinity));
    }
    hn::StoreU(scale, df, scales + g);
  }
  return hn::AllTrue(di, usual);
}

// Scales of at most kGroupsAtOnce groups, group g at group_at(g). False if they are not usual:
// parts of vectors; numbers that are none, infinities, and scales without all of their digits,
// under which quotients may go past the largest number.
template <class GroupAt>
HWY_INLINE bool FindUsualScales(const GroupFormat& format, const GroupRun& groups,
                                const GroupAt& group_at, float* HWY_RESTRICT scales) {
  const hn::ScalableTag<float> df;
  if (groups.size % hn::Lanes(df) != 0) return false;
  if (groups.count == kGroupsAtOnce) {
    uint32_t largest[kGroupsAtOnce];
    for (size_t g = 0; g < kGroupsAtOnce; g += 4) {
      LargestBitsOfFour([&](size_t r) { return group_at(g + r); }, groups.size, largest + g);
    }
    return UsualScales(format, largest, scales);
  }
  // The way through memory to vectors takes as long as a few scales.
  for (size_t g = 0; g < groups.count; ++g) {
    const uint32_t bits = LargestBits(group_at(g), groups.size);
    scales[g] = format.ScaleOf(std::bit_cast<float>(bits));
    if (bits >= kInfinityBits || scales[g] < std::numeric_limits<float>::min()) return false;
  }
  return true;
}

// The codes of groups that follow one another, under their scales, which are usual.
template <typename From>
HWY_INLINE void EncodeUsualGroups(const GroupFormat& format, const From* HWY_RESTRICT x,
                                  const GroupRun& groups, const float* HWY_RESTRICT scales,
                                  uint8_t* HWY_RESTRICT codes) {
  if (format.codes == GroupCodes::kE4M3) {
    EncodeUnderScales<E4M3FNFormat>(format, x, groups, scales, codes);
  } else {
    EncodeUnderScales<E2M1Format>(format, x, groups, scales, codes);
  }
}

#else

template <class GroupAt>
HWY_INLINE bool FindUsualScales(const GroupFormat&, const GroupRun&, const GroupAt&, float*) {
  return false;
}
template <typename From>
HWY_INLINE void EncodeUsualGroups(const GroupFormat&, const From*, const GroupRun&, const float*,
                                  uint8_t*) {}

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
    const auto group_at = [&](size_t g) { return from + g * groups.size; };
    if (FindUsualScales(format, run, group_at, scales + first)) {
      EncodeUsualGroups(format, from, run, scales + first, to);
      continue;
    }
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
