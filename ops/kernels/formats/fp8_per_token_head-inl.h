// SPDX-License-Identifier: Apache-2.0
// "fp8_per_token_head" in vectors. Include inside a file that hwy/foreach_target.h recompiles.
#if defined(PAGEFUSE_KERNELS_FORMATS_FP8_PER_TOKEN_HEAD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAGEFUSE_KERNELS_FORMATS_FP8_PER_TOKEN_HEAD_INL_H_
#undef PAGEFUSE_KERNELS_FORMATS_FP8_PER_TOKEN_HEAD_INL_H_
#else
#define PAGEFUSE_KERNELS_FORMATS_FP8_PER_TOKEN_HEAD_INL_H_
#endif

#include <algorithm>
#include <cstring>

#include "hwy/highway.h"

#include "pagefuse/ops/kernels/formats/e4m3_words-inl.h"
#include "pagefuse/ops/kernels/formats/row_codec-inl.h"
#include "pagefuse/ops/kernels/formats/row_codec.h"
#include "pagefuse/ops/kernels/numeric/extremes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

struct Fp8HeadCodec : ElementCodec<Float8E4M3FN, true> {
  template <typename From>
  HWY_INLINE float Scale(const From* HWY_RESTRICT x, size_t n) const {
    return std::max(LargestMagnitude(x, n) / kE4M3Max, kScaleFloor);
  }
  template <typename From>
  HWY_INLINE void StoreScaled(const From* HWY_RESTRICT x, size_t n, RowAddress row,
                              float scale) const {
    const hn::ScalableTag<float> df;
    const auto inverse = hn::Set(df, 1.0f / scale);
    TransformArray(x, n, reinterpret_cast<Element*>(row.data),
                   [&](auto v) HWY_ATTR { return hn::Mul(v, inverse); });
    std::memcpy(row.scale, &scale, sizeof(scale));
  }
  template <typename From>
  HWY_INLINE void Store(const From* HWY_RESTRICT x, size_t n, RowAddress row,
                        float* /*scratch*/) const {
    StoreScaled(x, n, row, Scale(x, n));
  }
};

struct Fp8PerTokenHead : RowViews<Fp8PerTokenHead, Fp8HeadCodec, E4M3Pairs<Fp8HeadCodec>> {
  static HWY_INLINE Fp8HeadCodec Writer(const CacheFormat&, const RowParams&) { return {}; }
};

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#endif  // toggle
