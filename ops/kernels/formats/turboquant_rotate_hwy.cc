// SPDX-License-Identifier: Apache-2.0
#define HWY_WANT_AVX3_DL  // byte_tables-inl.h
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/ops/kernels/formats/turboquant_rotate_hwy.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "pagefuse/ops/kernels/formats/turboquant_encode-inl.h"
#include "pagefuse/ops/kernels/formats/turboquant_format.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {

void Rotate(const float* rotation, const float* x, int64_t head_size, float* y) {
  RotateTurboRow(rotation, x, static_cast<size_t>(head_size), y);
}

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagefuse {

HWY_EXPORT(Rotate);

void RotateTurboQuantHwy(const float* rotation, const float* x, int64_t head_size, float* y) {
  HWY_DYNAMIC_DISPATCH(Rotate)(rotation, x, head_size, y);
}

}  // namespace pagefuse
#endif  // HWY_ONCE
