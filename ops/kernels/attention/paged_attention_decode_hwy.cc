// One query token against a segment of its sequence's keys: all formats of rows.

// Sums of weights are multiplied and added in plain C++, fused where the
// target can.
#pragma GCC optimize("fp-contract=fast")

#define HWY_WANT_AVX3_DL  // byte_tables-inl.h
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/kernels/attention/paged_attention_decode_hwy.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "pagefuse/kernels/attention/paged_attention_decode.h"
#include "pagefuse/kernels/attention/paged_attention_hwy.h"
#include "pagefuse/kernels/attention/paged_attention_segment-inl.h"
#include "pagefuse/kernels/attention/paged_attention_word_codecs-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {

#if PF_MULTIPLIES_WORDS

template <class Codec>
HWY_INLINE void DecodeWords(const PagedDecodeTask& task, const Codec& codec) {
  SegmentDecoder(task, WordKeys(codec), WordValues(codec)).Run();
}

// False if the loops of words do not take the problem.
HWY_INLINE bool DecodedWords(const PagedDecodeTask& task) {
  const PagedAttentionProblem& p = *task.problem;
  if (SuitsIntegers(p) && p.format.mode == KvQuantMode::kInt8PerTokenHead) {
    DecodeWords(task, Int8Words());
    return true;
  }
  if (SuitsIntegers(p) && p.format.mode == KvQuantMode::kInt4PerTokenHead) {
    DecodeWords(task, Int4Words());
    return true;
  }
#if PF_HAS_BYTE_TABLES
  if (SuitsBfloat16(p) && p.format.element == DataType::kFloat8E4M3FN) {
    if (p.format.mode == KvQuantMode::kFp8PerTokenHead) {
      DecodeWords(task, E4M3Pairs(Fp8HeadCodec()));
    } else {
      DecodeWords(task, E4M3Pairs(PlainCodec<Float8E4M3FN>()));
    }
    return true;
  }
#endif
  return false;
}

#endif

void DecodeSegment(const PagedDecodeTask& task) {
#if PF_MULTIPLIES_WORDS
  if (DecodedWords(task)) return;
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
