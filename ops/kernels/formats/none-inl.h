// SPDX-License-Identifier: Apache-2.0
// "none" in vectors. Include inside a file that hwy/foreach_target.h recompiles.
#if defined(PAGEFUSE_KERNELS_FORMATS_NONE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAGEFUSE_KERNELS_FORMATS_NONE_INL_H_
#undef PAGEFUSE_KERNELS_FORMATS_NONE_INL_H_
#else
#define PAGEFUSE_KERNELS_FORMATS_NONE_INL_H_
#endif

#include "hwy/highway.h"

#include "pagefuse/ops/kernels/formats/e4m3_words-inl.h"
#include "pagefuse/ops/kernels/formats/row_codec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <typename T, class WordCodec = PlainCodec<T>>
struct PlainRows : RowViews<PlainRows<T, WordCodec>, PlainCodec<T>, WordCodec> {
  static HWY_INLINE PlainCodec<T> Writer(const CacheFormat&, const RowParams&) { return {}; }
};

struct None {
  template <class F>
  static HWY_INLINE void Call(const CacheFormat& format, const F& f) {
    if (format.element == DataType::kFloat) return f(PlainRows<float>());
    if (format.element == DataType::kFloat16) return f(PlainRows<Float16>());
    if (format.element == DataType::kBfloat16) return f(PlainRows<Bfloat16>());
    f(PlainRows<Float8E4M3FN, E4M3Pairs<PlainCodec<Float8E4M3FN>>>());
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#endif  // toggle
