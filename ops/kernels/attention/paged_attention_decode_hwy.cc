// SPDX-License-Identifier: Apache-2.0
// One query token against a segment of its sequence's keys: all formats of rows.

// Sums of weights are multiplied and added in plain C++, fused where the
// target can.
#pragma GCC optimize("fp-contract=fast")

#define HWY_WANT_AVX3_DL  // byte_tables-inl.h
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/ops/kernels/attention/paged_attention_decode_hwy.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "pagefuse/ops/kernels/attention/paged_attention_decode.h"
#include "pagefuse/ops/kernels/attention/paged_attention_segment-inl.h"
#include "pagefuse/ops/kernels/formats/for_format-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {

void DecodeSegment(const PagedDecodeTask& task) {
  ForFormat(task.problem->format, [&](const auto& views) HWY_ATTR { DecodeRows(task, views); });
}

void Hadamard(float* x, int64_t n) { HadamardVectors(x, static_cast<size_t>(n)); }

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagefuse {

HWY_EXPORT(DecodeSegment);
HWY_EXPORT(Hadamard);

void HadamardTransformHwy(float* x, int64_t n) { HWY_DYNAMIC_DISPATCH(Hadamard)(x, n); }

int64_t PagedDecodeScratch(const PagedAttentionProblem& p) {
  return DecodeScratch(p, nullptr).bytes;
}

void RunPagedDecode(const PagedDecodeTask& task) {
  if (task.problem->turboquant) return RunTurboQuantDecode(task);
  HWY_DYNAMIC_DISPATCH(DecodeSegment)(task);
}

}  // namespace pagefuse
#endif
