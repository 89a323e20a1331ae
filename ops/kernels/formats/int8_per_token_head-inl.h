// SPDX-License-Identifier: Apache-2.0
// "int8_per_token_head" in vectors. Include inside a file that hwy/foreach_target.h recompiles.
#if defined(PAGEFUSE_KERNELS_FORMATS_INT8_PER_TOKEN_HEAD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAGEFUSE_KERNELS_FORMATS_INT8_PER_TOKEN_HEAD_INL_H_
#undef PAGEFUSE_KERNELS_FORMATS_INT8_PER_TOKEN_HEAD_INL_H_
#else
#define PAGEFUSE_KERNELS_FORMATS_INT8_PER_TOKEN_HEAD_INL_H_
#endif

#include <algorithm>
#include <cstring>

#include "hwy/highway.h"

#include "pagefuse/ops/kernels/formats/row_codec-inl.h"
#include "pagefuse/ops/kernels/formats/row_codec.h"
#include "pagefuse/ops/kernels/formats/words-inl.h"
#include "pagefuse/ops/kernels/numeric/extremes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

struct Int8HeadCodec : ElementCodec<int8_t, true> {
  Int8Rounding rounding = Int8Rounding::kHalfEven;

  template <typename From>
  HWY_INLINE float Scale(const From* HWY_RESTRICT x, size_t n) const {
    return std::max(LargestMagnitude(x, n) / kInt8Max, kScaleFloor);
  }
  template <typename From>
  HWY_INLINE void StoreScaled(const From* HWY_RESTRICT x, size_t n, RowAddress row,
                              float scale) const {
    const hn::ScalableTag<float> df;
    const auto inverse = hn::Set(df, 1.0f / scale);
    auto* to = reinterpret_cast<Element*>(row.data);
    std::memcpy(row.scale, &scale, sizeof(scale));
    if (rounding == Int8Rounding::kTowardZero) {
      return TransformArray(x, n, to,
                            [&](auto v) HWY_ATTR { return hn::Trunc(hn::Mul(v, inverse)); });
    }
    // Rounded to nearest even where it is stored.
    TransformArray(x, n, to, [&](auto v) HWY_ATTR { return hn::Mul(v, inverse); });
  }
  template <typename From>
  HWY_INLINE void Store(const From* HWY_RESTRICT x, size_t n, RowAddress row,
                        float* /*scratch*/) const {
    StoreScaled(x, n, row, Scale(x, n));
  }

#if PF_MULTIPLIES_WORDS
  using Word = int16_t;
  static constexpr float largest_word() { return 128; }
  static constexpr float word_unit() { return 1; }
  static constexpr size_t WordElement(size_t i) { return i; }
  static constexpr size_t PairElement(size_t i) { return InterleavedRowWord(i); }

  HWY_INLINE void LoadWords(const Row& row, size_t d, Words (&to)[2]) const {
    const hn::Rebind<int8_t, WordTag> d8;
    for (size_t i = 0; i < 2; ++i) {
      to[i] = hn::PromoteTo(WordTag(), hn::LoadU(d8, row.data + d + i * kWords));
    }
  }
  HWY_INLINE void LoadPairs(const Row& a, const Row& b, size_t d, Words (&to)[4]) const {
    InterleaveRows(*this, a, b, d, to);
  }
#endif
};

struct Int8PerTokenHead : RowViews<Int8PerTokenHead, Int8HeadCodec> {
  static HWY_INLINE Int8HeadCodec Writer(const CacheFormat& format, const RowParams&) {
    return {{}, format.int8_rounding};
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#endif  // toggle
