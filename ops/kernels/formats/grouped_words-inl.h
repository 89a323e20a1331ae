// SPDX-License-Identifier: Apache-2.0
// Rows of latent caches as bfloat16 words, the operands of tile products. Include inside a file
// that hwy/foreach_target.h recompiles. Works on every target, is meant for AVX-512.
#if defined(PAGEFUSE_KERNELS_FORMATS_GROUPED_WORDS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAGEFUSE_KERNELS_FORMATS_GROUPED_WORDS_INL_H_
#undef PAGEFUSE_KERNELS_FORMATS_GROUPED_WORDS_INL_H_
#else
#define PAGEFUSE_KERNELS_FORMATS_GROUPED_WORDS_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"

#include "pagefuse/ops/kernels/formats/e4m3_words-inl.h"
#include "pagefuse/ops/kernels/formats/grouped_row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The high halves of the lanes.
template <class VU>
HWY_INLINE void StoreHighHalves(VU bits, uint16_t* to) {
  const hn::Rebind<uint16_t, hn::DFromV<VU>> du16;
  hn::StoreU(hn::TruncateTo(du16, hn::ShiftRight<16>(bits)), du16, to);
}

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3

#if PF_HAS_BYTE_TABLES

// DecodeCodedWords of groups with power-of-two scales.
template <class Codec>
HWY_INLINE size_t DecodePowersOfTwo(const Codec& codec, const typename Codec::Row& row,
                                    uint16_t* HWY_RESTRICT to) {
  E4M3Words unscaled;
  unscaled.SetPowerOfTwo(1.0f);
  const E4M3WordBytes bytes = unscaled.Bytes();
  for (size_t d = 0; d < codec.coded(); d += codec.group()) {
    const float scale = codec.ScaleAt(row, d);
    if (!E4M3Words::Takes(scale)) return d;
    bytes.DecodeShifted(ExponentShift(scale), codec.group(), row.data + d, to + d);
  }
  return codec.coded();
}

#endif

// The coded elements of a row as bfloat16. Returns how many were decoded; fewer than all where
// groups are unusual or scales extreme.
template <class Codec>
HWY_INLINE size_t DecodeCodedWords(const Codec& codec, const typename Codec::Row& row,
                                   uint16_t* HWY_RESTRICT to) {
  const size_t group = codec.group();
  const size_t size = codec.coded();
  if (group % E4M3Words::kStep != 0) return 0;
  if constexpr (Codec::kScale == GroupScale::kUe8m0) {
#if PF_HAS_BYTE_TABLES
    if (group % E4M3WordBytes::kStep == 0) return DecodePowersOfTwo(codec, row, to);
#endif
    for (size_t d = 0; d < size; d += group) {
      const float scale = codec.ScaleAt(row, d);
      if (!E4M3Words::Takes(scale)) return d;
      E4M3Words words;
      words.SetPowerOfTwo(scale);
      words.Decode(group, row.data + d, to + d);
    }
    return size;
  }
  constexpr size_t kGroups = ScaledE4M3Words::kGroups;
  for (size_t begin = 0; begin < size; begin += kGroups * group) {
    float scales[kGroups];
    for (size_t g = 0; g < kGroups; ++g) {
      scales[g] = codec.ScaleAt(row, std::min(begin + g * group, size - 1));
      if (!E4M3Words::Takes(scales[g])) return begin;
    }
    const ScaledE4M3Words words(scales);
    for (size_t g = 0; g < kGroups && begin + g * group < size; ++g) {
      const size_t d = begin + g * group;
      words.Group(g).Decode(group, row.data + d, to + d);
    }
  }
  return size;
}

#else

template <class Codec>
HWY_INLINE size_t DecodeCodedWords(const Codec&, const typename Codec::Row&, uint16_t*) {
  return 0;
}

#endif

// A cache row of `size` elements, all of them bfloat16 numbers once decoded, as `words` words, a
// multiple of 32: zeros behind the elements.
template <class Codec>
HWY_INLINE void DecodeRowWords(const Codec& codec, RowAddress address, size_t size, size_t words,
                               uint16_t* HWY_RESTRICT to) {
  const hn::ScalableTag<float> df;
  const hn::RebindToUnsigned<decltype(df)> du;
  const size_t lanes = hn::Lanes(df);
  const auto row = codec.Open(address);
  size_t d = 0;
  if constexpr (std::is_same_v<typename Codec::Element, Float8E4M3FN>) {
    d = DecodeCodedWords(codec, row, to);
    if (d == codec.coded()) {  // the others are bfloat16
      codec.CopyPlain(row, size - d, to + d);
      return std::fill(to + size, to + words, uint16_t{0});
    }
  }
  // Exact: only the high halves are not 0.
  for (; d + lanes <= size; d += lanes) {
    StoreHighHalves(hn::BitCast(du, codec.Load(df, row, d)), to + d);
  }
  for (; d < words; d += lanes) {
    const auto x = d < size ? codec.LoadN(df, row, d, size - d) : hn::Zero(df);
    StoreHighHalves(hn::BitCast(du, x), to + d);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#endif  // toggle
