// SPDX-License-Identifier: Apache-2.0
// One query token against a segment of its sequence's keys in TurboQuant slots.
#define HWY_WANT_AVX3_DL  // byte_tables-inl.h
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/ops/kernels/turboquant/turboquant_decode_hwy.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "pagefuse/ops/kernels/attention/paged_attention_hwy.h"
#include "pagefuse/ops/kernels/attention/paged_attention_segment-inl.h"
#include "pagefuse/ops/kernels/formats/turboquant-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {

void DecodeTurboQuantSegment(const PagedDecodeTask& task) {
  ForFormat(*task.problem->turboquant,
            [&](const auto& views) HWY_ATTR { DecodeRows(task, views); });
}

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagefuse {

HWY_EXPORT(DecodeTurboQuantSegment);

void RunTurboQuantDecode(const PagedDecodeTask& task) {
  HWY_DYNAMIC_DISPATCH(DecodeTurboQuantSegment)(task);
}

}  // namespace pagefuse
#endif
