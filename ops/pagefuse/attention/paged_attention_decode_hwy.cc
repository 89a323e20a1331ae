// One query token against a segment of its sequence's keys: all formats of rows.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/ops/pagefuse/attention/paged_attention_decode_hwy.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "pagefuse/ops/pagefuse/attention/paged_attention_decode.h"
#include "pagefuse/ops/pagefuse/attention/paged_attention_hwy.h"
#include "pagefuse/ops/pagefuse/attention/paged_attention_integers-inl.h"
#include "pagefuse/ops/pagefuse/attention/paged_attention_segment-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {

#if PF_MULTIPLIES_WORDS

template <class Codec>
HWY_INLINE void DecodeIntegers(const PagedDecodeTask& task, const Codec& codec) {
  SegmentDecoder(task, IntegerKeys(codec), IntegerValues(codec)).Run();
}

#endif

void DecodeSegment(const PagedDecodeTask& task) {
#if PF_MULTIPLIES_WORDS
  if (SuitsIntegers(*task.problem)) {
    const KvQuantMode mode = task.problem->format.mode;
    if (mode == KvQuantMode::kInt8PerTokenHead) return DecodeIntegers(task, Int8Words());
    if (mode == KvQuantMode::kInt4PerTokenHead) return DecodeIntegers(task, Int4Words());
  }
#endif
  WithDecodeReader(task.problem->format,
                   [&](const auto& codec) HWY_ATTR { SegmentDecoder(task, codec, codec).Run(); });
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
