// SPDX-License-Identifier: Apache-2.0
// The inner loops of decoding by products of 16-bit words, two to a lane: as many in an instruction
// as two of floats take, and codes become words in fewer steps than floats. Include inside a file
// that hwy/foreach_target.h recompiles. For codecs of words (words-inl.h).
//
// Words are integers or bfloat16, and so are the query and the softmax weights of a tile. As
// integers these have one unit each: of 15 bits, or what the sums of a lane leave them, which is
// below what a 16-bit query and output resolve; sums of integers are exact, so that nothing else is
// lost. A bfloat16 query is what it is, and a weight becomes the sum of two words, 16 bits.
#if defined(PAGEFUSE_KERNELS_ATTENTION_PAGED_ATTENTION_WORDS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAGEFUSE_KERNELS_ATTENTION_PAGED_ATTENTION_WORDS_INL_H_
#undef PAGEFUSE_KERNELS_ATTENTION_PAGED_ATTENTION_WORDS_INL_H_
#else
#define PAGEFUSE_KERNELS_ATTENTION_PAGED_ATTENTION_WORDS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"

#include "pagefuse/ops/kernels/attention/paged_attention_decode-inl.h"
#include "pagefuse/ops/kernels/formats/words-inl.h"
#include "pagefuse/ops/kernels/linalg/cpu_features.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if PF_MULTIPLIES_WORDS

constexpr size_t kLongestWordRow = 1024;

// How words are multiplied.
template <class Word>
struct WordProducts;

// Words as integers, and sums of their products. The words of a tile's weights are where their
// floats were.
template <>
struct WordProducts<int16_t> {
  static constexpr bool kIntegers = true;
  static constexpr size_t kParts = 1;  // words of a weight
  // Elements whose products lanes add up: longer sums would leave a query less bits.
  static constexpr size_t kRun = 4 * kWordStep;
  using Element = int32_t;
  using Sums = hn::Vec<SumTag>;

  // Where the query has no more bits than the integers.
  static HWY_INLINE bool Suit(const PagedAttentionProblem& p) {
    return BitWidth(p.compute_type) == 16 && p.head_size <= int64_t{kLongestWordRow} &&
           p.head_size % static_cast<int64_t>(kWordStep) == 0;
  }

  // sums + a * b, each lane of a sum with two products. Highway asks the processor for AVX512-VNNI
  // before it takes AVX3_DL, but (1.0.3) the compiler for AVX-VNNI: no intrinsic.
  static HWY_INLINE Sums Add(Sums sums, Words a, Words b) {
#if HWY_TARGET <= HWY_AVX3_DL
    asm("vpdpwssd %2, %1, %0" : "+v"(sums.raw) : "v"(a.raw), "v"(b.raw));
    return sums;
#else
    Sums unused = hn::Zero(SumTag());
    return hn::ReorderWidenMulAccumulate(SumTag(), a, b, sums, unused);
#endif
  }
  static HWY_INLINE hn::Vec<FloatTag> Floats(Sums sums) { return hn::ConvertTo(FloatTag(), sums); }

  // Words of ordered[0, n), for products with words of at most `largest_word`; returns their unit.
  static HWY_INLINE float StoreQuery(const float* HWY_RESTRICT ordered, size_t n,
                                     float largest_word, int16_t* HWY_RESTRICT words) {
    const FloatTag df;
    // What one lane adds up in a run, each number rounded, stays below 2^31.
    auto of_lane = hn::Zero(df);  // in each two lanes
    for (size_t run = 0; run < n; run += kRun) {
      auto first = hn::Zero(df);
      auto second = hn::Zero(df);
      for (size_t i = run; i < HWY_MIN(run + kRun, n); i += kWords) {
        first = hn::Add(first, hn::Abs(hn::Load(df, ordered + i)));
        second = hn::Add(second, hn::Abs(hn::Load(df, ordered + i + kSumLanes)));
      }
      of_lane = hn::Max(of_lane, hn::Max(hn::Add(first, hn::Reverse2(df, first)),
                                         hn::Add(second, hn::Reverse2(df, second))));
    }
    constexpr float kMost = 0x7FFFFF00p0f;
    const float most = kMost / largest_word - static_cast<float>(kRun / kSumLanes);
    const float least_unit = hn::GetLane(hn::MaxOfLanes(df, of_lane)) / most;
    return StoreIntegers(ordered, n, kMostOfWord, least_unit, words);
  }
  static HWY_INLINE float StoreWeights(float* weights, size_t n) {
    return StoreIntegers(weights, n, kMostOfWord, 0, reinterpret_cast<int16_t*>(weights));
  }
};

#if HWY_TARGET <= HWY_AVX3_DL

// Words as bfloat16. Needs AVX512-BF16.
template <>
struct WordProducts<Bfloat16> {
  static constexpr bool kIntegers = false;
  static constexpr size_t kParts = 2;
  static constexpr size_t kRun = kLongestWordRow;
  using Element = float;
  using Sums = hn::Vec<FloatTag>;

  // Where the query is bfloat16, and the processor multiplies that no slower than floats.
  static HWY_INLINE bool Suit(const PagedAttentionProblem& p) {
    return WordProducts<int16_t>::Suit(p) && p.compute_type == DataType::kBfloat16 &&
           HasFastBf16Dots();
  }

  static HWY_INLINE Sums Add(Sums sums, Words a, Words b) {
    asm("vdpbf16ps %2, %1, %0" : "+v"(sums.raw) : "v"(a.raw), "v"(b.raw));
    return sums;
  }
  static HWY_INLINE Sums Floats(Sums sums) { return sums; }

  // Of numbers that are bfloat16.
  static HWY_INLINE float StoreQuery(const float* HWY_RESTRICT ordered, size_t n,
                                     float /*largest_word*/, int16_t* HWY_RESTRICT words) {
    ConvertArray(ordered, n, reinterpret_cast<Bfloat16*>(words));
    return 1;
  }
  // The second words, of what the first leave, are kPaTileKeys words behind these.
  static HWY_INLINE float StoreWeights(float* weights, size_t n) {
    const FloatTag df;
    auto* words = reinterpret_cast<Bfloat16*>(weights);
    Bfloat16 second[kPaTileKeys];
    for (size_t i = 0; i < n; i += kSumLanes) {
      const auto v = hn::Load(df, weights + i);
      StoreFromFloat(v, df, words + i);
      StoreFromFloat(hn::Sub(v, LoadToFloat(df, words + i)), df, second + i);
    }
    std::memcpy(words + kPaTileKeys, second, n * sizeof(Bfloat16));
    return 1;
  }
};

#endif

// Keys as words.
template <class Codec>
struct WordKeys : Codec {
  static constexpr bool kTakesWords = true;
  static constexpr float kUnit = 1.0f;  // StoreQuery tells
  using Row = typename Codec::Row;
  using Products = WordProducts<typename Codec::Word>;

  explicit HWY_INLINE WordKeys(const Codec& codec) : Codec(codec) {}

  // Words of query row x[0, n) as Dot takes them; returns what a dot product is worth.
  HWY_INLINE float StoreQuery(const float* HWY_RESTRICT x, size_t n,
                              int16_t* HWY_RESTRICT words) const {
    HWY_ALIGN float ordered[kLongestWordRow];
    for (size_t d = 0; d < n; d += kWordStep) {
      for (size_t i = 0; i < kWordStep; ++i) ordered[d + i] = x[d + kOrder.element[i]];
    }
    return this->word_unit() * Products::StoreQuery(ordered, n, this->largest_word(), words);
  }

  // What a square of Dot's is worth.
  HWY_INLINE float square_unit() const { return this->word_unit() * this->word_unit(); }

  // DotStep, of words.
  template <size_t heads, bool squares>
  HWY_INLINE void Dot(const Row (&rows)[kStep], const float* HWY_RESTRICT query,
                      const StepShape& shape, const StepSums& to) const {
    if constexpr (kRegisters == 32) {
      DotTogether<heads, squares>(rows, query, shape, to);
    } else {
      DotKeyByKey<heads, squares>(rows, query, shape, to);
    }
  }

 private:
  using Sums = typename Products::Sums;
  // The elements of a step in the order of its words.
  struct Order {
    uint8_t element[kWordStep];
    constexpr Order() : element{} {
      for (size_t i = 0; i < kWordStep; ++i) {
        element[i] = static_cast<uint8_t>(Codec::WordElement(i));
      }
    }
  };
  static constexpr Order kOrder{};
  struct Elements {
    size_t begin, end;
  };

  // Dot where registers hold the sums of several keys, which share the queries' words. The sums go
  // straight to StoreSums: on any other way the compiler keeps them in memory.
  template <size_t heads, bool squares>
  HWY_INLINE void DotTogether(const Row (&rows)[kStep], const float* HWY_RESTRICT query,
                              const StepShape& shape, const StepSums& to) const {
    const hn::ScalableTag<float> df;
    constexpr size_t kKeys = KeysAtATime<heads>();
    for (size_t first = 0; first < kStep; first += kKeys) {
      hn::Vec<decltype(df)> floats[heads + squares][kKeys];
      DotRun<heads, squares, kKeys>(&rows[first], query, {0, HWY_MIN(Products::kRun, shape.size)},
                                    shape, floats);
      for (size_t run = Products::kRun; run < shape.size; run += Products::kRun) {
        hn::Vec<decltype(df)> more[heads + squares][kKeys];
        DotRun<heads, squares, kKeys>(
            &rows[first], query, {run, HWY_MIN(run + Products::kRun, shape.size)}, shape, more);
        for (size_t row = 0; row < heads + squares; ++row) {
          for (size_t k = 0; k < kKeys; ++k) {
            floats[row][k] = hn::Add(floats[row][k], more[row][k]);
          }
        }
      }
      StoreSums(df, floats, [&](size_t row) HWY_ATTR {
        return first + (row < heads ? to.scores + row * kPaTileKeys : to.squares);
      });
    }
  }

  // Dot where there are 16 registers. Those of the sums of one key are few enough; the queries'
  // words, which more keys would share, come from memory with the instruction that multiplies
  // them, and sums of integers do not wait for each other.
  template <size_t heads, bool squares>
  HWY_INLINE void DotKeyByKey(const Row (&rows)[kStep], const float* HWY_RESTRICT query,
                              const StepShape& shape, const StepSums& to) const {
    const hn::ScalableTag<float> df;
    hn::Vec<decltype(df)> floats[heads + squares][kStep];
    for (size_t k = 0; k < kStep; ++k) {
      for (size_t run = 0; run < shape.size; run += Products::kRun) {
        hn::Vec<decltype(df)> sums[heads + squares][1];
        DotRun<heads, squares, 1>(&rows[k], query, {run, HWY_MIN(run + Products::kRun, shape.size)},
                                  shape, sums);
        for (size_t row = 0; row < heads + squares; ++row) {
          floats[row][k] = run == 0 ? sums[row][0] : hn::Add(floats[row][k], sums[row][0]);
        }
      }
    }
    StoreSums(df, floats, [&](size_t row) HWY_ATTR {
      return row < heads ? to.scores + row * kPaTileKeys : to.squares;
    });
  }

  // The sums of Dot over `run`, before lanes are added.
  template <size_t heads, bool squares, size_t kKeys, class V>
  HWY_INLINE void DotRun(const Row* rows, const float* HWY_RESTRICT query, Elements run,
                         const StepShape& shape, V (&floats)[heads + squares][kKeys]) const {
    const hn::ScalableTag<float> df;
    Sums sums[heads + squares][kKeys];
    for (auto& row : sums) {
      for (Sums& sum : row) sum = ZeroSums();
    }
    for (size_t d = run.begin; d < run.end; d += kWordStep) {
      Words keys[kKeys][2];
      for (size_t k = 0; k < kKeys; ++k) this->LoadWords(rows[k], d, keys[k]);
      for (size_t h = 0; h < heads; ++h) {
        const auto* words = reinterpret_cast<const int16_t*>(query + h * shape.row_floats) + d;
        for (size_t i = 0; i < 2; ++i) {
          Words q = hn::LoadU(WordTag(), words + i * kWords);
          if constexpr (kKeys > 1) q = InRegister(q);
          for (size_t k = 0; k < kKeys; ++k) sums[h][k] = Products::Add(sums[h][k], q, keys[k][i]);
        }
      }
      if constexpr (squares) {
        for (size_t k = 0; k < kKeys; ++k) {
          for (const Words& v : keys[k]) sums[heads][k] = Products::Add(sums[heads][k], v, v);
        }
      }
    }
    for (size_t row = 0; row < heads + squares; ++row) {
      for (size_t k = 0; k < kKeys; ++k) floats[row][k] = Products::Floats(sums[row][k]);
    }
  }

  static HWY_INLINE Sums ZeroSums() { return hn::Zero(hn::DFromV<Sums>()); }
};

// Values as words, those of two rows side by side in a lane. Integers are below 2^10: a lane adds up
// kPaTileKeys of them by weights of 15 bits.
template <class Codec>
struct WordValues : Codec {
  static constexpr bool kTakesWords = true;
  static constexpr size_t kStepElements = kWordStep;
  using Row = typename Codec::Row;
  using Products = WordProducts<typename Codec::Word>;

  explicit HWY_INLINE WordValues(const Codec& codec) : Codec(codec) {}

  // The weights of a tile as Accumulate takes them, where they are; returns what one is worth.
  HWY_INLINE float StoreWeights(float* weights, size_t n) const {
    return Products::StoreWeights(weights, n);
  }

  // AccumulateStep: sums[h] += sum over the step's values of their words by weights. Row h of
  // weights begins at weights[h * kPaTileKeys] and has the words of `step` at [kStep * step].
  template <size_t heads>
  HWY_INLINE void Accumulate(const Row (&rows)[kStep], const float* HWY_RESTRICT weights,
                             size_t step, const StepShape& shape,
                             typename Products::Element* HWY_RESTRICT sums) const {
    using Sums = typename Products::Sums;
    const hn::DFromV<Sums> d32;
    constexpr size_t kParts = Products::kParts;
    Words w[heads][2][kParts];
    for (size_t h = 0; h < heads; ++h) {
      for (size_t i = 0; i < 2 * kParts; ++i) {
        const size_t word = i % kParts * kPaTileKeys + kStep * step + i / kParts * 2;
        int32_t pair;
        std::memcpy(&pair, reinterpret_cast<const int16_t*>(weights + h * kPaTileKeys) + word,
                    sizeof(pair));
        w[h][i / kParts][i % kParts] = hn::BitCast(WordTag(), hn::Set(SumTag(), pair));
      }
    }
    for (size_t d = 0; d < shape.size; d += kWordStep) {
      Words values[2][4];
      for (size_t i = 0; i < 2; ++i) {
        this->LoadPairs(rows[2 * i], rows[2 * i + 1], d, values[i]);
      }
      for (size_t h = 0; h < heads; ++h) {
        auto* HWY_RESTRICT to = sums + h * shape.row_floats + d;
        for (size_t v = 0; v < 4; ++v) {
          Sums sum = hn::Load(d32, to + v * kSumLanes);
          for (size_t i = 0; i < 2; ++i) {
            for (const Words& part : w[h][i]) sum = Products::Add(sum, part, values[i][v]);
          }
          hn::Store(sum, d32, to + v * kSumLanes);
        }
      }
    }
  }
};

#endif  // PF_MULTIPLIES_WORDS

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#endif  // toggle
