// One query token against a segment of its sequence's keys in TurboQuant slots.
#define HWY_WANT_AVX3_DL  // byte_tables-inl.h
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/kernels/turboquant/turboquant_decode_hwy.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "pagefuse/kernels/attention/paged_attention_hwy.h"
#include "pagefuse/kernels/attention/paged_attention_segment-inl.h"
#include "pagefuse/kernels/attention/paged_attention_word_codecs-inl.h"
#include "pagefuse/kernels/formats/turboquant_codec-inl.h"
#include "pagefuse/kernels/turboquant/turboquant_words-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {

using E4M3Keys = E4M3Reader<PlainCodec<Float8E4M3FN>>;

// Calls f.operator()<bits>(), where there are 3 or 4.
template <class F>
HWY_INLINE void WithBits(int bits, const F& f) {
  if (bits == 3) {
    f.template operator()<3>();
  } else {
    f.template operator()<4>();
  }
}

template <class KeyCodec>
HWY_INLINE void DecodeWithKeys(const PagedDecodeTask& task, const KeyCodec& keys) {
  WithBits(task.problem->turboquant->format.value_bits, [&]<int bits>() HWY_ATTR {
    const TurboValueCodec<bits> values;
    SegmentDecoder(task, keys, values).Run();
  });
}

#if PF_MULTIPLIES_WORDS

template <class KeyCodec>
HWY_INLINE void DecodeWordsWithKeys(const PagedDecodeTask& task, const KeyCodec& keys) {
  WithBits(task.problem->turboquant->format.value_bits, [&]<int bits>() HWY_ATTR {
    const WordValues values{TurboValueWords<bits>()};
    SegmentDecoder(task, keys, values).Run();
  });
}

void DecodeTurboQuantIntegers(const PagedDecodeTask& task) {
  const TurboQuantCache& cache = *task.problem->turboquant;
  if (!cache.format.has_centroids()) {
#if PF_HAS_BYTE_TABLES
    if (SuitsBfloat16(*task.problem)) {
      return DecodeWordsWithKeys(task, WordKeys(E4M3Pairs(PlainCodec<Float8E4M3FN>())));
    }
#endif
    return DecodeWordsWithKeys(task, E4M3Keys());
  }
  WithBits(cache.format.key_bits, [&]<int bits>() HWY_ATTR {
    const TurboKeyWords<bits> keys(cache.tables.centroids, cache.norm_correction);
    DecodeWordsWithKeys(task, WordKeys(keys));
  });
}

#endif

void DecodeTurboQuantSegment(const PagedDecodeTask& task) {
#if PF_MULTIPLIES_WORDS
  if (SuitsIntegers(*task.problem)) return DecodeTurboQuantIntegers(task);
#endif
  const TurboQuantCache& cache = *task.problem->turboquant;
  if (!cache.format.has_centroids()) return DecodeWithKeys(task, E4M3Keys());
  WithBits(cache.format.key_bits, [&]<int bits>() HWY_ATTR {
    DecodeWithKeys(task, TurboKeyCodec<bits>(cache.tables.centroids, cache.norm_correction));
  });
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
