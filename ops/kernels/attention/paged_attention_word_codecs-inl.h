// Rows of caches as words (see paged_attention_words-inl.h). Include inside a file that
// hwy/foreach_target.h recompiles.
#if defined(PAGEFUSE_KERNELS_ATTENTION_PAGED_ATTENTION_WORD_CODECS_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef PAGEFUSE_KERNELS_ATTENTION_PAGED_ATTENTION_WORD_CODECS_INL_H_
#undef PAGEFUSE_KERNELS_ATTENTION_PAGED_ATTENTION_WORD_CODECS_INL_H_
#else
#define PAGEFUSE_KERNELS_ATTENTION_PAGED_ATTENTION_WORD_CODECS_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"

#include "pagefuse/kernels/attention/paged_attention_words-inl.h"
#include "pagefuse/kernels/formats/e4m3_words-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if PF_MULTIPLIES_WORDS

struct Int8Words : Reader<Int8HeadCodec<Int8Rounding::kHalfEven>> {
  using Products = IntegerProducts;
  static constexpr float largest_word() { return 128; }
  static constexpr float word_unit() { return 1; }
  static constexpr size_t WordElement(size_t i) { return i; }
  static constexpr size_t PairElement(size_t i) { return InterleavedRowWord(i); }

  // Implicit constructors are compiled for no SIMD target.
  HWY_INLINE Int8Words() {}

  HWY_INLINE void LoadWords(const Row& row, size_t d, Words (&to)[2]) const {
    const hn::Rebind<int8_t, WordTag> d8;
    for (size_t i = 0; i < 2; ++i) {
      to[i] = hn::PromoteTo(WordTag(), hn::LoadU(d8, row.data + d + i * kWords));
    }
  }
  HWY_INLINE void LoadPairs(const Row& a, const Row& b, size_t d, Words (&to)[4]) const {
    InterleaveRows(*this, a, b, d, to);
  }
};

struct Int4Words : Reader<Int4HeadCodec> {
  using Pairs = CodePairs<4>;
  using Products = IntegerProducts;
  static constexpr float largest_word() { return 15; }
  static constexpr float word_unit() { return 1; }
  static constexpr size_t WordElement(size_t i) { return Pairs::WordElement(i); }
  static constexpr size_t PairElement(size_t i) { return Pairs::PairElement(i); }

  HWY_INLINE Int4Words() {}

  HWY_INLINE void LoadWords(const Row& row, size_t d, Words (&to)[2]) const {
    const Words pairs = BytesAsWords(row.data + d / 2);
    const Words zero_point = hn::Set(WordTag(), static_cast<int16_t>(row.zero_point));
    to[0] = hn::Sub(Pairs::First(pairs), zero_point);
    to[1] = hn::Sub(Pairs::Second(pairs), zero_point);
  }
  HWY_INLINE void LoadPairs(const Row& a, const Row& b, size_t d, Words (&to)[4]) const {
    Pairs::Load(BytesAsWords(a.data + d / 2), BytesAsWords(b.data + d / 2), to);
    const int32_t both = static_cast<int32_t>(a.zero_point) | static_cast<int32_t>(b.zero_point)
                                                                  << 16;
    const Words zero_points = hn::BitCast(WordTag(), hn::Set(SumTag(), both));
    for (Words& v : to) v = hn::Sub(v, zero_points);
  }
};

#if PF_HAS_BYTE_TABLES

// e4m3 codes by lookup.
template <class Codec>
class E4M3Pairs : public Reader<Codec> {
 public:
  using Row = typename Codec::Row;
  using Products = Bfloat16Products;
  static constexpr float largest_word() { return 0; }
  static constexpr float word_unit() { return 1; }
  // Interleaving takes the lower half of each 128 bits, then the upper.
  static constexpr size_t WordElement(size_t i) {
    return i % kWords / 8 * 16 + i / kWords * 8 + i % 8;
  }
  static constexpr size_t PairElement(size_t i) { return WordElement(InterleavedRowWord(i)); }

  explicit HWY_INLINE E4M3Pairs(const Codec& codec) : Reader<Codec>{codec}, bytes_(WordsOfOne()) {}

  HWY_INLINE void LoadWords(const Row& row, size_t d, Words (&to)[2]) const {
    const ByteVec codes{_mm512_loadu_si512(row.data + d)};
    const auto [first, second] = bytes_.HalvesOf(codes);
    to[0] = Words{first.raw};
    to[1] = Words{second.raw};
  }
  HWY_INLINE void LoadPairs(const Row& a, const Row& b, size_t d, Words (&to)[4]) const {
    InterleaveRows(*this, a, b, d, to);
  }

 private:
  static HWY_INLINE E4M3WordBytes WordsOfOne() {
    E4M3Words words;
    words.SetPowerOfTwo(1);
    return words.Bytes();
  }

  E4M3WordBytes bytes_;
};

#endif

#endif  // PF_MULTIPLIES_WORDS

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#endif  // toggle
