// SPDX-License-Identifier: Apache-2.0
// From a format to its vectors. Include inside a file that hwy/foreach_target.h recompiles.
#if defined(PAGEFUSE_KERNELS_FORMATS_FOR_FORMAT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAGEFUSE_KERNELS_FORMATS_FOR_FORMAT_INL_H_
#undef PAGEFUSE_KERNELS_FORMATS_FOR_FORMAT_INL_H_
#else
#define PAGEFUSE_KERNELS_FORMATS_FOR_FORMAT_INL_H_
#endif

#include "hwy/highway.h"

#include "pagefuse/ops/kernels/formats/fp8_per_tensor-inl.h"
#include "pagefuse/ops/kernels/formats/fp8_per_token_head-inl.h"
#include "pagefuse/ops/kernels/formats/int4_per_token_head-inl.h"
#include "pagefuse/ops/kernels/formats/int8_per_token_head-inl.h"
#include "pagefuse/ops/kernels/formats/none-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {

// Calls f(views) with the views of `format` (row_codec-inl.h).
template <class F>
HWY_INLINE void ForFormat(const CacheFormat& format, const F& f) {
  switch (format.mode) {
    case KvQuantMode::kNone:
      return None::Call(format, f);
    case KvQuantMode::kFp8PerTensor:
      return Fp8PerTensor::Call(format, f);
    case KvQuantMode::kInt8PerTokenHead:
      return Int8PerTokenHead::Call(format, f);
    case KvQuantMode::kFp8PerTokenHead:
      return Fp8PerTokenHead::Call(format, f);
    case KvQuantMode::kInt4PerTokenHead:
      return Int4PerTokenHead::Call(format, f);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#endif  // toggle
