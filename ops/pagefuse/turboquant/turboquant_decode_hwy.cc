// One query token against a segment of its sequence's keys in TurboQuant slots.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/ops/pagefuse/turboquant/turboquant_decode_hwy.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "pagefuse/ops/cache/turboquant_codec-inl.h"
#include "pagefuse/ops/pagefuse/attention/paged_attention_hwy.h"
#include "pagefuse/ops/pagefuse/attention/paged_attention_segment-inl.h"
#include "pagefuse/ops/pagefuse/turboquant/turboquant_integers-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {

template <template <int> class ValueCodec, class KeyCodec>
HWY_INLINE void DecodeWithKeys(const PagedDecodeTask& task, const KeyCodec& keys) {
  if (task.problem->turboquant->format.value_bits == 3) {
    const ValueCodec<3> values;
    SegmentDecoder(task, keys, values).Run();
  } else {
    const ValueCodec<4> values;
    SegmentDecoder(task, keys, values).Run();
  }
}

using E4M3Keys = E4M3Reader<PlainCodec<Float8E4M3FN>>;

#if PF_HAS_BYTE_TABLES

// Where the query has no more bits than the integers.
bool SuitsIntegers(const PagedAttentionProblem& p) {
  constexpr int64_t kLongest = 1024;
  return BitWidth(p.compute_type) == 16 && p.head_size <= kLongest &&
         p.head_size % static_cast<int64_t>(TurboKeyIntegers<4>::kStepElements) == 0;
}

void DecodeByIntegers(const PagedDecodeTask& task) {
  const TurboQuantCache& cache = *task.problem->turboquant;
  const auto decode = [&]<int bits>() HWY_ATTR {
    const TurboKeyIntegers<bits> keys(cache.tables.centroids, cache.norm_correction,
                                      static_cast<size_t>(cache.format.head_size));
    DecodeWithKeys<TurboValueIntegers>(task, keys);
  };
  switch (cache.format.key_bits) {
    case 3:
      return decode.template operator()<3>();
    case 4:
      return decode.template operator()<4>();
    default:
      return DecodeWithKeys<TurboValueIntegers>(task, E4M3Keys());
  }
}

#endif

void DecodeTurboQuantSegment(const PagedDecodeTask& task) {
#if PF_HAS_BYTE_TABLES
  if (SuitsIntegers(*task.problem)) return DecodeByIntegers(task);
#endif
  const TurboQuantCache& cache = *task.problem->turboquant;
  const float* centroids = cache.tables.centroids;
  switch (cache.format.key_bits) {
    case 3:
      return DecodeWithKeys<TurboValueCodec>(task,
                                             TurboKeyCodec<3>(centroids, cache.norm_correction));
    case 4:
      return DecodeWithKeys<TurboValueCodec>(task,
                                             TurboKeyCodec<4>(centroids, cache.norm_correction));
    default:
      return DecodeWithKeys<TurboValueCodec>(task, E4M3Keys());
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
