// One query token against a segment of its sequence's keys in TurboQuant slots.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/ops/pagefuse/turboquant/turboquant_decode_hwy.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "pagefuse/ops/cache/turboquant_codec-inl.h"
#include "pagefuse/ops/pagefuse/attention/paged_attention_hwy.h"
#include "pagefuse/ops/pagefuse/attention/paged_attention_segment-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {

template <class KeyCodec>
HWY_INLINE void DecodeWithKeys(const PagedDecodeTask& task, const KeyCodec& keys) {
  if (task.problem->turboquant->format.value_bits == 3) {
    const TurboValueCodec<3> values;
    SegmentDecoder(task, keys, values).Run();
  } else {
    const TurboValueCodec<4> values;
    SegmentDecoder(task, keys, values).Run();
  }
}

void DecodeTurboQuantSegment(const PagedDecodeTask& task) {
  const TurboQuantCache& cache = *task.problem->turboquant;
  switch (cache.format.key_bits) {
    case 3:
      return DecodeWithKeys(task, TurboKeyCodec<3>(cache.tables.centroids, cache.norm_correction));
    case 4:
      return DecodeWithKeys(task, TurboKeyCodec<4>(cache.tables.centroids, cache.norm_correction));
    default:
      return DecodeWithKeys(task, E4M3Reader<PlainCodec<Float8E4M3FN>>());
  }
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
