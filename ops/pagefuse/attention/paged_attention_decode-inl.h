// The inner loops of decoding: a few keys (values) in registers, against all query heads of their
// KV head. Include inside a file that hwy/foreach_target.h recompiles.
#if defined(PAGEFUSE_OPS_PAGEFUSE_PAGED_ATTENTION_DECODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAGEFUSE_OPS_PAGEFUSE_PAGED_ATTENTION_DECODE_INL_H_
#undef PAGEFUSE_OPS_PAGEFUSE_PAGED_ATTENTION_DECODE_INL_H_
#else
#define PAGEFUSE_OPS_PAGEFUSE_PAGED_ATTENTION_DECODE_INL_H_
#endif

#include "hwy/highway.h"

#include "pagefuse/ops/cache/row_codec-inl.h"
#include "pagefuse/ops/pagefuse/attention/paged_attention_hwy.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Keys (values) whose rows are in registers at a time.
constexpr size_t kStep = 4;
constexpr auto kStepKeys = static_cast<int64_t>(kStep);
// Query heads whose sums are: with four keys they fill half of 32 registers.
constexpr size_t kMaxHeads = HWY_TARGET <= HWY_AVX3 ? 4 : 2;

// A codec as the loops use it: elements are Load() * kUnit * row.scale, and two vectors are read at
// a time where registers allow.
// With kEvenOdd the first of the two has elements d, d + 2, ..., the second d + 1, d + 3, ...
// With kUnitLength a row is divided by its length if codec.norm_correction says so: its factor is
// known when all of it has been read. With kRowOffset elements are that plus row.offset.
template <class Codec>
struct Reader : Codec {
  static constexpr float kUnit = 1.0f;
  static constexpr bool kEvenOdd = false;
  static constexpr bool kUnitLength = false;
  static constexpr bool kRowOffset = false;

  template <class DF, class V>
  HWY_INLINE void LoadTwo(DF df, const typename Codec::Row& row, size_t d, V& a, V& b) const {
    a = this->Load(df, row, d);
    b = this->Load(df, row, d + hn::Lanes(df));
  }
};

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
// A lane holds two elements: shifted and masked, they are floats.
struct Bfloat16Reader : PlainCodec<Bfloat16> {
  static constexpr float kUnit = 1.0f;
  static constexpr bool kEvenOdd = true;
  static constexpr bool kUnitLength = false;
  static constexpr bool kRowOffset = false;

  template <class DF, class V>
  HWY_INLINE void LoadTwo(DF df, const Row& row, size_t d, V& a, V& b) const {
    const hn::RebindToUnsigned<DF> du;
    const hn::Repartition<uint16_t, DF> du16;
    const auto pairs =
        hn::BitCast(du, hn::LoadU(du16, reinterpret_cast<const uint16_t*>(row.data + d)));
    a = hn::BitCast(df, hn::ShiftLeft<16>(pairs));
    b = hn::BitCast(df, hn::And(pairs, hn::Set(du, 0xFFFF0000u)));
  }
};
#else
using Bfloat16Reader = Reader<PlainCodec<Bfloat16>>;
#endif

#if PF_HAS_F16C
// Shifted by seven, a code is a float16 of the value / 256 (see LoadToFloat), which is what this
// gives: the factor costs nothing elsewhere. Two vectors of floats are one of codes in 16 bits.
template <class Codec>
struct E4M3Reader : Codec {
  static constexpr float kUnit = 256.0f;
  static constexpr bool kEvenOdd = false;
  static constexpr bool kUnitLength = false;
  static constexpr bool kRowOffset = false;

  template <class D16, class V16>
  static HWY_INLINE V16 Halves(D16 di16, V16 codes) {  // sign-extended
    const auto sign = hn::Set(di16, static_cast<int16_t>(0x8000));
    const auto halves = hn::AndNot(hn::Set(di16, 0x4000), hn::ShiftLeft<7>(codes));
    const auto is_nan =
        hn::Eq(hn::Or(halves, sign), hn::Set(di16, static_cast<int16_t>(0x8000 | 0x7F << 7)));
    return hn::IfThenElse(is_nan, hn::Set(di16, 0x7FFF), halves);
  }
  template <class DF, class V>
  HWY_INLINE void LoadTwo(DF df, const typename Codec::Row& row, size_t d, V& a, V& b) const {
    const hn::Repartition<int16_t, DF> di16;
    const hn::Rebind<int8_t, decltype(di16)> di8;
    const hn::Rebind<hwy::float16_t, DF> df16;
    const hn::Half<decltype(di16)> half;
    const auto* codes = reinterpret_cast<const int8_t*>(row.data + d);
    const auto halves = Halves(di16, hn::PromoteTo(di16, hn::LoadU(di8, codes)));
    a = hn::PromoteTo(df, hn::BitCast(df16, hn::LowerHalf(half, halves)));
    b = hn::PromoteTo(df, hn::BitCast(df16, hn::UpperHalf(half, halves)));
  }
  template <class DF>
  HWY_INLINE hn::Vec<DF> Load(DF df, const typename Codec::Row& row, size_t d) const {
    return hn::Mul(Codec::Load(df, row, d), hn::Set(df, 1.0f / kUnit));
  }
  template <class DF>
  HWY_INLINE hn::Vec<DF> LoadN(DF df, const typename Codec::Row& row, size_t d,
                               size_t count) const {
    return hn::Mul(Codec::LoadN(df, row, d, count), hn::Set(df, 1.0f / kUnit));
  }
};
#else
template <class Codec>
using E4M3Reader = Reader<Codec>;
#endif

#if HWY_TARGET <= HWY_AVX3
// A vector of 16 floats is a table of what each code means in a row. A byte widened to a lane holds
// two indices.
struct Int4Reader : Int4HeadCodec {
  static constexpr float kUnit = 1.0f;
  static constexpr bool kEvenOdd = true;
  static constexpr bool kUnitLength = false;
  static constexpr bool kRowOffset = false;

  template <class DF, class V>
  HWY_INLINE void LoadTwo(DF df, const Row& row, size_t d, V& a, V& b) const {
    const hn::RebindToSigned<DF> di;
    const hn::Rebind<uint8_t, DF> du8;
    const auto table = hn::Sub(hn::Iota(df, 0.0f), hn::Set(df, row.zero_point));
    const auto bytes = hn::PromoteTo(di, hn::LoadU(du8, row.data + d / 2));
    const auto mask = hn::Set(di, 15);
    a = hn::TableLookupLanes(table, hn::IndicesFromVec(df, hn::And(bytes, mask)));
    b = hn::TableLookupLanes(table, hn::IndicesFromVec(df, hn::ShiftRight<4>(bytes)));
  }
};
#else
using Int4Reader = Reader<Int4HeadCodec>;
#endif

// Calls f(reader) with the reader of rows of `format`; see WithReader.
template <class F>
HWY_INLINE void WithDecodeReader(const CacheFormat& format, const F& f) {
  WithReader(format, [&](const auto& codec) HWY_ATTR {
    using Codec = std::decay_t<decltype(codec)>;
    if constexpr (std::is_same_v<typename Codec::Element, Float8E4M3FN>) {
      f(E4M3Reader<Codec>{codec});
    } else if constexpr (std::is_same_v<Codec, Int4HeadCodec>) {
      f(Int4Reader{codec});
    } else if constexpr (std::is_same_v<Codec, PlainCodec<Bfloat16>>) {
      f(Bfloat16Reader{codec});
    } else {
      f(Reader<Codec>{codec});
    }
  });
}

#if HWY_TARGET == HWY_SCALAR

template <class DF, class V = hn::Vec<DF>>
HWY_INLINE void StoreSums(DF /*df*/, const V (&v)[kStep], float* HWY_RESTRICT to) {
  for (size_t k = 0; k < kStep; ++k) to[k] = hn::GetLane(v[k]);
}

#else

// Sums of the lanes at the same place of each 128-bit block.
template <class D, class V = hn::Vec<D>>
HWY_INLINE hn::Vec<hn::Full128<float>> AddBlocks(D d, V v) {
  if constexpr (hn::MaxLanes(d) <= 4) {
    return v;
  } else {
    const hn::Half<D> half;
    return AddBlocks(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}

// to[k] = the sum of all lanes of v[k].
template <class DF, class V = hn::Vec<DF>>
HWY_INLINE void StoreSums(DF df, const V (&v)[kStep], float* HWY_RESTRICT to) {
  static_assert(kStep == 4);
  const hn::Repartition<uint64_t, DF> du64;
  const auto ab = hn::Add(hn::InterleaveLower(df, v[0], v[1]), hn::InterleaveUpper(df, v[0], v[1]));
  const auto cd = hn::Add(hn::InterleaveLower(df, v[2], v[3]), hn::InterleaveUpper(df, v[2], v[3]));
  const auto ab64 = hn::BitCast(du64, ab);
  const auto cd64 = hn::BitCast(du64, cd);
  const auto sum = hn::Add(hn::BitCast(df, hn::InterleaveLower(du64, ab64, cd64)),
                           hn::BitCast(df, hn::InterleaveUpper(du64, ab64, cd64)));
  hn::StoreU(AddBlocks(df, sum), hn::Full128<float>(), to);
}

#endif

// True if rows of `size` elements come in even and odd halves of two vectors.
template <class Codec>
HWY_INLINE bool IsEvenOdd(size_t size) {
  return Codec::kEvenOdd && size % (2 * hn::Lanes(hn::ScalableTag<float>())) == 0;
}

struct StepShape {
  size_t size;        // elements of a head
  size_t row_floats;  // from one query or output row to the next
};

// Calls add(d, vectors) with the vectors at element d of the step's rows, for all d.
template <class Codec, class F>
HWY_INLINE void ForVectors(const Codec& codec, const typename Codec::Row (&rows)[kStep],
                           const StepShape& shape, const F& add) {
  const hn::ScalableTag<float> df;
  using V = hn::Vec<decltype(df)>;
  const size_t lanes = hn::Lanes(df);
  size_t d = 0;
  if (HWY_TARGET <= HWY_AVX3 && (!Codec::kEvenOdd || IsEvenOdd<Codec>(shape.size))) {
    for (; d + 2 * lanes <= shape.size; d += 2 * lanes) {
      V a[kStep];
      V b[kStep];
      for (size_t k = 0; k < kStep; ++k) codec.LoadTwo(df, rows[k], d, a[k], b[k]);
      add(d, a);
      add(d + lanes, b);
    }
  }
  for (; d + lanes <= shape.size; d += lanes) {
    V a[kStep];
    for (size_t k = 0; k < kStep; ++k) a[k] = codec.Load(df, rows[k], d);
    add(d, a);
  }
  if (d == shape.size) return;
  V a[kStep];
  for (size_t k = 0; k < kStep; ++k) a[k] = codec.LoadN(df, rows[k], d, shape.size - d);
  add(d, a);
}

// Where a step's sums go.
struct StepSums {
  float* HWY_RESTRICT scores;   // of row h and the step's keys: scores[h * kPaTileKeys + 0, kStep)
  float* HWY_RESTRICT squares;  // [kStep]
};

// Dot products of kStep keys with `heads` query rows, and with themselves if `squares`.
template <size_t heads, bool squares, class Codec>
HWY_INLINE void DotStep(const Codec& codec, const typename Codec::Row (&rows)[kStep],
                        const float* HWY_RESTRICT query, const StepShape& shape,
                        const StepSums& to) {
  const hn::ScalableTag<float> df;
  using V = hn::Vec<decltype(df)>;
  V sums[heads][kStep];
  for (auto& row : sums) {
    for (V& sum : row) sum = hn::Zero(df);
  }
  V lengths[kStep];
  for (V& sum : lengths) sum = hn::Zero(df);
  ForVectors(codec, rows, shape, [&](size_t d, const V(&keys)[kStep]) HWY_ATTR {
    for (size_t h = 0; h < heads; ++h) {
      const V q = hn::Load(df, query + h * shape.row_floats + d);
      for (size_t k = 0; k < kStep; ++k) sums[h][k] = hn::MulAdd(q, keys[k], sums[h][k]);
    }
    if constexpr (squares) {
      for (size_t k = 0; k < kStep; ++k) lengths[k] = hn::MulAdd(keys[k], keys[k], lengths[k]);
    }
  });
  for (size_t h = 0; h < heads; ++h) StoreSums(df, sums[h], to.scores + h * kPaTileKeys);
  if constexpr (squares) StoreSums(df, lengths, to.squares);
}

// output[h] += sum over kStep keys of weights[h * kPaTileKeys + k] times their values.
template <size_t heads, class Codec>
HWY_INLINE void AccumulateStep(const Codec& codec, const typename Codec::Row (&rows)[kStep],
                               const float* HWY_RESTRICT weights, const StepShape& shape,
                               float* HWY_RESTRICT output) {
  const hn::ScalableTag<float> df;
  using V = hn::Vec<decltype(df)>;
  V w[heads][kStep];
  for (size_t h = 0; h < heads; ++h) {
    for (size_t k = 0; k < kStep; ++k) w[h][k] = hn::Set(df, weights[h * kPaTileKeys + k]);
  }
  ForVectors(codec, rows, shape, [&](size_t d, const V(&values)[kStep]) HWY_ATTR {
    for (size_t h = 0; h < heads; ++h) {
      float* HWY_RESTRICT to = output + h * shape.row_floats + d;
      V o = hn::Load(df, to);
      for (size_t k = 0; k < kStep; ++k) o = hn::MulAdd(w[h][k], values[k], o);
      hn::Store(o, df, to);
    }
  });
}

// Calls f.operator()<n>(first head) for groups of query heads that together are `group`.
template <class F>
HWY_INLINE void ForHeads(size_t group, const F& f) {
  size_t h = 0;
  for (; h + kMaxHeads <= group; h += kMaxHeads) f.template operator()<kMaxHeads>(h);
  if constexpr (kMaxHeads > 2) {
    if (h + 3 == group) return f.template operator()<3>(h);
    if (h + 2 == group) return f.template operator()<2>(h);
  }
  if (h < group) f.template operator()<1>(h);
}

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#endif  // toggle
