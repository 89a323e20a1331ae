// The inner loops of decoding over TurboQuant slots by products of 16-bit integers, two to a lane
// (AVX512-VNNI): twice as many as of floats, and codes need no conversion. Include inside a file
// that hwy/foreach_target.h recompiles.
//
// Centroids, the rotated query and the softmax weights of a tile each become integers under one
// unit, the step that its largest magnitude and the sums of a lane allow: 14 bits of centroids and
// query up to 128 elements, half a bit less with each doubling, and 15 of the weights. That is
// below what a 16-bit query and output resolve. Sums of integers are exact: nothing else is lost.
#if defined(PAGEFUSE_OPS_PAGEFUSE_TURBOQUANT_INTEGERS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAGEFUSE_OPS_PAGEFUSE_TURBOQUANT_INTEGERS_INL_H_
#undef PAGEFUSE_OPS_PAGEFUSE_TURBOQUANT_INTEGERS_INL_H_
#else
#define PAGEFUSE_OPS_PAGEFUSE_TURBOQUANT_INTEGERS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "hwy/highway.h"

#include "pagefuse/ops/cache/turboquant_codec-inl.h"
#include "pagefuse/ops/numeric/byte_tables-inl.h"
#include "pagefuse/ops/pagefuse/attention/paged_attention_decode-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if PF_HAS_BYTE_TABLES

// Where the pairs of 3-bit codes begin, six bits each, and the bytes behind.
struct PairBytes {
  alignas(64) uint8_t at[64];
  constexpr PairBytes() : at{} {
    for (size_t i = 0; i < 64; ++i) at[i] = static_cast<uint8_t>(i / 2 * 6 / 8 + i % 2);
  }
};
inline constexpr PairBytes kPairBytes;

using Words = hn::Vec<hn::Full512<int16_t>>;
using WordSums = hn::Vec<hn::Full512<int32_t>>;

// sums + a * b, each lane of a sum with two products. Highway asks the processor for AVX512-VNNI
// before it takes this target, but (1.0.3) the compiler for AVX-VNNI: no intrinsic.
HWY_INLINE WordSums AddProducts(WordSums sums, Words a, Words b) {
  asm("vpdpwssd %2, %1, %0" : "+v"(sums.raw) : "v"(a.raw), "v"(b.raw));
  return sums;
}

// Writes x[0, n) / unit as integers of at most `largest` and returns the unit: NaN if there is a
// number that is none, or infinity; 0 if all are 0. n is a multiple of 16; `to` may be x.
HWY_INLINE float StoreIntegers(const float* x, size_t n, float largest, int16_t* to) {
  const hn::Full512<float> df;
  const hn::Rebind<int16_t, decltype(df)> d16;
  auto most = hn::Zero(df);
  auto sum = hn::Zero(df);  // Max may drop a NaN
  for (size_t i = 0; i < n; i += hn::Lanes(df)) {
    const auto magnitude = hn::Abs(hn::LoadU(df, x + i));
    most = hn::Max(most, magnitude);
    sum = hn::Add(sum, magnitude);
  }
  const float unit = hn::GetLane(hn::MaxOfLanes(df, most)) / largest;
  const bool usual = std::isfinite(hn::GetLane(hn::SumOfLanes(df, sum)));
  // Smaller units have no reciprocal; what is a multiple of them does not count.
  const float factor = usual && unit >= std::numeric_limits<float>::min() ? 1 / unit : 0;
  for (size_t i = 0; i < n; i += hn::Lanes(df)) {
    const auto v = hn::IfThenZeroElse(hn::IsNaN(hn::LoadU(df, x + i)), hn::LoadU(df, x + i));
    const auto scaled = hn::NearestInt(hn::Mul(v, hn::Set(df, factor)));
    hn::StoreU(hn::DemoteTo(d16, scaled), d16, to + i);
  }
  return usual ? unit : std::numeric_limits<float>::quiet_NaN();
}

// Keys of centroids in slots of a multiple of kStepElements. As TurboKeyCodec, but for the loop.
template <int bits>
class TurboKeyIntegers : public TurboKeyCodec<bits> {
 public:
  static constexpr bool kIntegers = true;
  static constexpr size_t kStepElements = 64;
  using Row = typename TurboKeyCodec<bits>::Row;

  HWY_INLINE TurboKeyIntegers(const float* centroids, bool correct, size_t head_size)
      : TurboKeyCodec<bits>(centroids, correct) {
    constexpr size_t kCodes = size_t{1} << bits;
    HWY_ALIGN float floats[kCodes * 2] = {};
    HWY_ALIGN int16_t integers[kWords];
    std::copy_n(centroids, kCodes, floats);
    // The squares that one lane adds up stay below 2^31.
    const auto of_lane = static_cast<float>(head_size / kLanes);
    const float largest = std::min(32767.0f, std::floor(std::sqrt(0x7FFFFFFFp0f / of_lane)) - 1);
    unit_ = StoreIntegers(floats, kCodes * 2, largest, integers);
    for (size_t i = kCodes; i < kWords; ++i) integers[i] = integers[i % kCodes];
    table_ = hn::Load(hn::Full512<int16_t>(), integers);
    largest_ = largest;
  }

  // What a square of Dot's is worth.
  float square_unit() const { return unit_ * unit_; }

  // Query row x[0, n) as Dot takes it, where x is; returns what a dot product is worth.
  HWY_INLINE float StoreQuery(float* x, size_t n) const {
    // A lane adds up of_lane products with centroids of at most largest_.
    const auto of_lane = static_cast<float>(n / kLanes);
    const float largest = std::min(32767.0f, 0x7FFFFFFFp0f / (of_lane * largest_) - 1);
    auto* words = reinterpret_cast<int16_t*>(x);
    const float unit = StoreIntegers(x, n, largest, words);
    HWY_ALIGN int16_t step[kStepElements];
    for (size_t d = 0; d < n; d += kStepElements) {
      std::memcpy(step, words + d, sizeof(step));
      // As Codes gives elements: the even ones, then the odd ones.
      for (size_t i = 0; i < kWords; ++i) {
        std::memcpy(words + d + i, &step[2 * i], sizeof(int16_t));
        std::memcpy(words + d + kWords + i, &step[2 * i + 1], sizeof(int16_t));
      }
    }
    return unit * unit_;
  }

  // DotStep.
  template <size_t heads, bool squares>
  HWY_INLINE void Dot(const Row (&rows)[kStep], const float* HWY_RESTRICT query,
                      const StepShape& shape, const StepSums& to) const {
    const hn::Full512<int16_t> d16;
    const hn::Full512<int32_t> d32;
    const hn::Full512<float> df;
    WordSums sums[heads + squares][kStep];
    for (auto& row : sums) {
      for (WordSums& sum : row) sum = hn::Zero(d32);
    }
    for (size_t d = 0; d < shape.size; d += kStepElements) {
      Words even[kStep];
      Words odd[kStep];
      for (size_t k = 0; k < kStep; ++k) {
        const Words pairs = Pairs(rows[k].data + d * bits / 8);
        even[k] = Lookup(pairs);
        odd[k] = Lookup(Words{_mm512_srli_epi16(pairs.raw, bits)});
      }
      for (size_t h = 0; h < heads; ++h) {
        const auto* words = reinterpret_cast<const int16_t*>(query + h * shape.row_floats) + d;
        const Words q_even = InRegister(hn::LoadU(d16, words));
        const Words q_odd = InRegister(hn::LoadU(d16, words + kWords));
        for (size_t k = 0; k < kStep; ++k) {
          sums[h][k] = AddProducts(AddProducts(sums[h][k], q_even, even[k]), q_odd, odd[k]);
        }
      }
      if constexpr (squares) {
        for (size_t k = 0; k < kStep; ++k) {
          WordSums& sum = sums[heads][k];
          sum = AddProducts(AddProducts(sum, even[k], even[k]), odd[k], odd[k]);
        }
      }
    }
    hn::Vec<decltype(df)> floats[heads + squares][kStep];
    for (size_t row = 0; row < heads + squares; ++row) {
      for (size_t k = 0; k < kStep; ++k) floats[row][k] = hn::ConvertTo(df, sums[row][k]);
    }
    StoreSums(df, floats, [&](size_t row) HWY_ATTR {
      return row < heads ? to.scores + row * kPaTileKeys : to.squares;
    });
  }

 private:
  static constexpr size_t kWords = 32;  // of a vector
  static constexpr size_t kLanes = 16;  // of sums

  // The centroids of codes in the low bits; the next ones do not matter.
  HWY_INLINE Words Lookup(Words codes) const {
    return Words{_mm512_permutexvar_epi16(codes.raw, table_.raw)};
  }

  // The codes of two elements in the low bits of each word.
  static HWY_INLINE Words Pairs(const uint8_t* HWY_RESTRICT p) {
    if constexpr (bits == 4) {
      const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
      return Words{_mm512_cvtepu8_epi16(bytes)};
    } else {
      // Six bits each: the two bytes that hold them, shifted. Eight bytes too many are read: a norm
      // and at least 28 of the value follow.
      const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
      const hn::Full512<uint8_t> d8;
      const __m512i words =
          _mm512_permutexvar_epi8(hn::Load(d8, kPairBytes.at).raw, _mm512_castsi256_si512(bytes));
      // 0, 6, 4, 2 from the lowest word up.
      return Words{_mm512_srlv_epi16(words, _mm512_set1_epi64(0x0002000400060000))};
    }
  }

  Words table_;
  float unit_;
  float largest_;  // of the integers
};

// Values in slots of a multiple of 32 elements. As TurboValueCodec, but for the loop.
template <int bits>
struct TurboValueIntegers : TurboValueCodec<bits> {
  static constexpr bool kIntegers = true;
  using Row = typename TurboValueCodec<bits>::Row;

  // Implicit constructors are compiled for no SIMD target.
  HWY_INLINE TurboValueIntegers() {}

  // The weights of a tile as Accumulate takes them, where they are; returns what one is worth.
  HWY_INLINE float StoreWeights(float* weights, size_t n) const {
    // kPaTileKeys products with codes of at most 15 stay below 2^31.
    return StoreIntegers(weights, n, 32767, reinterpret_cast<int16_t*>(weights));
  }

  // AccumulateStep into integers: sums[h] += sum over the step's values of their codes by weights.
  // Row h of weights begins at weights[h * kPaTileKeys] and has the integers of `step` at
  // [kStep * step].
  template <size_t heads>
  HWY_INLINE void Accumulate(const Row (&rows)[kStep], const float* HWY_RESTRICT weights,
                             size_t step, const StepShape& shape,
                             int32_t* HWY_RESTRICT sums) const {
    const hn::Full512<float> df;
    const hn::Full512<int32_t> d32;
    const size_t lanes = hn::Lanes(d32);
    Words w[heads][2];  // pairs of values in turn
    for (size_t h = 0; h < heads; ++h) {
      const auto* words = reinterpret_cast<const uint8_t*>(weights + h * kPaTileKeys) + 8 * step;
      for (size_t i = 0; i < 2; ++i) {
        int32_t pair;
        std::memcpy(&pair, words + 4 * i, sizeof(pair));
        w[h][i] = InRegister(Words{_mm512_set1_epi32(pair)});
      }
    }
    for (size_t d = 0; d < shape.size; d += 2 * lanes) {
      WordSums even[heads];
      WordSums odd[heads];
      for (size_t h = 0; h < heads; ++h) {
        even[h] = hn::Load(d32, sums + h * shape.row_floats + d);
        odd[h] = hn::Load(d32, sums + h * shape.row_floats + d + lanes);
      }
      for (size_t i = 0; i < 2; ++i) {
        const auto first = this->PairLanes(df, rows[2 * i].data + d * bits / 8);
        const auto second = this->PairLanes(df, rows[2 * i + 1].data + d * bits / 8);
        // Codes of the two values side by side.
        const __m512i both =
            _mm512_mask_blend_epi16(0xAAAAAAAA, first.raw, _mm512_slli_epi32(second.raw, 16));
        const __m512i code = _mm512_set1_epi16((1 << bits) - 1);
        const Words a{_mm512_and_si512(both, code)};
        const Words b{_mm512_and_si512(_mm512_srli_epi16(both, bits), code)};
        for (size_t h = 0; h < heads; ++h) {
          even[h] = AddProducts(even[h], w[h][i], a);
          odd[h] = AddProducts(odd[h], w[h][i], b);
        }
      }
      for (size_t h = 0; h < heads; ++h) {
        hn::Store(even[h], d32, sums + h * shape.row_floats + d);
        hn::Store(odd[h], d32, sums + h * shape.row_floats + d + lanes);
      }
    }
  }
};

#endif  // PF_HAS_BYTE_TABLES

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#endif  // toggle
