// SPDX-License-Identifier: Apache-2.0
// The inner loops of decoding: a few keys (values) in registers, against all query heads of their
// KV head. Include inside a file that hwy/foreach_target.h recompiles.
#if defined(PAGEFUSE_KERNELS_ATTENTION_PAGED_ATTENTION_DECODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAGEFUSE_KERNELS_ATTENTION_PAGED_ATTENTION_DECODE_INL_H_
#undef PAGEFUSE_KERNELS_ATTENTION_PAGED_ATTENTION_DECODE_INL_H_
#else
#define PAGEFUSE_KERNELS_ATTENTION_PAGED_ATTENTION_DECODE_INL_H_
#endif

#include "hwy/highway.h"

#include "pagefuse/ops/kernels/attention/paged_attention_hwy.h"
#include "pagefuse/ops/kernels/formats/row_codec-inl.h"
#include "pagefuse/ops/kernels/numeric/fold_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr size_t kRegisters = HWY_TARGET <= HWY_AVX3 ? 32 : 16;
// Query heads that share a decoded key or value.
constexpr size_t kMaxHeads = 4;
// Keys (values) of a step.
constexpr size_t kStep = 4;
constexpr auto kStepKeys = static_cast<int64_t>(kStep);

// Keys whose dot products with `heads` queries are in registers at a time, and beside each sum two
// vectors of each key.
template <size_t heads>
constexpr size_t KeysAtATime() {
  return (heads + 2) * 4 < kRegisters ? 4 : 2;
}

// Keeps the compiler from reading v from memory again at each use: more loads than a cycle has.
template <class V>
HWY_INLINE V InRegister(V v) {
#if HWY_TARGET == HWY_AVX2 && !HWY_COMPILER_MSVC
  asm volatile("" : "+x"(v.raw));
#elif HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3 && !HWY_COMPILER_MSVC
  asm volatile("" : "+v"(v.raw));
#endif
  return v;
}

// to(row)[k] = the sum of all lanes of v[row][k].
template <size_t rows, size_t keys, class DF, class V, class To>
HWY_INLINE void StoreSums(DF df, const V (&v)[rows][keys], const To& to) {
#if HWY_TARGET == HWY_SCALAR
  (void)df;
  for (size_t row = 0; row < rows; ++row) {
    for (size_t k = 0; k < keys; ++k) to(row)[k] = hn::GetLane(v[row][k]);
  }
#else
  const hn::Full128<float> d4;
  if constexpr (keys == 4) {
    for (size_t row = 0; row < rows; ++row) {
      hn::StoreU(FoldFour<LaneSum>(df, v[row][0], v[row][1], v[row][2], v[row][3]), d4, to(row));
    }
  } else {
    static_assert(keys == 2);
    const hn::Half<decltype(d4)> d2;
    for (size_t row = 0; row < rows; row += 2) {
      const size_t next = HWY_MIN(row + 1, rows - 1);
      const auto sums = FoldFour<LaneSum>(df, v[row][0], v[row][1], v[next][0], v[next][1]);
      hn::StoreU(hn::UpperHalf(d2, sums), d2, to(next));
      hn::StoreU(hn::LowerHalf(d2, sums), d2, to(row));
    }
  }
#endif
}

// True if rows of `size` elements come in even and odd halves of two vectors.
template <class Codec>
HWY_INLINE bool IsEvenOdd(size_t size) {
  return Codec::kEvenOdd && size % (2 * hn::Lanes(hn::ScalableTag<float>())) == 0;
}

struct StepShape {
  size_t size;        // elements of a head
  size_t row_floats;  // from one query or output row to the next
};

// Calls pair(d) for pairs of vectors of a row, the first at element d, then rest(d, count) for
// vectors with `count` elements.
template <class Codec, class Pairs, class Rest>
HWY_INLINE void ForVectors(size_t size, const Pairs& pair, const Rest& rest) {
  const size_t lanes = hn::Lanes(hn::ScalableTag<float>());
  size_t d = 0;
  if (!Codec::kEvenOdd || IsEvenOdd<Codec>(size)) {
    for (; d + 2 * lanes <= size; d += 2 * lanes) pair(d);
  }
  for (; d < size; d += lanes) rest(d, HWY_MIN(lanes, size - d));
}

// At most a vector of elements, as those of LoadTwo.
template <class DF, class Codec>
HWY_INLINE hn::Vec<DF> LoadUpTo(DF df, const Codec& codec, const typename Codec::Row& row, size_t d,
                                size_t count) {
  const auto v = count == hn::Lanes(df) ? codec.Load(df, row, d) : codec.LoadN(df, row, d, count);
  if constexpr (Codec::kUnit == 1.0f) return v;
  return hn::Mul(v, hn::Set(df, 1.0f / Codec::kUnit));
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
  const size_t lanes = hn::Lanes(df);
  constexpr size_t kKeys = KeysAtATime<heads>();
  constexpr size_t kRows = heads + squares;
  for (size_t first = 0; first < kStep; first += kKeys) {
    V sums[kRows][kKeys];
    for (auto& row : sums) {
      for (V& sum : row) sum = hn::Zero(df);
    }
    const auto add = [&](size_t d, const V(&keys)[kKeys]) HWY_ATTR {
      for (size_t h = 0; h < heads; ++h) {
        const V q = InRegister(hn::Load(df, query + h * shape.row_floats + d));
        for (size_t k = 0; k < kKeys; ++k) sums[h][k] = hn::MulAdd(q, keys[k], sums[h][k]);
      }
      if constexpr (squares) {
        for (size_t k = 0; k < kKeys; ++k) {
          sums[heads][k] = hn::MulAdd(keys[k], keys[k], sums[heads][k]);
        }
      }
    };
    ForVectors<Codec>(
        shape.size,
        [&](size_t d) HWY_ATTR {
          V a[kKeys];
          V b[kKeys];
          for (size_t k = 0; k < kKeys; ++k) codec.LoadTwo(df, rows[first + k], d, a[k], b[k]);
          add(d, a);
          add(d + lanes, b);
        },
        [&](size_t d, size_t count) HWY_ATTR {
          V a[kKeys];
          for (size_t k = 0; k < kKeys; ++k) a[k] = LoadUpTo(df, codec, rows[first + k], d, count);
          add(d, a);
        });
    StoreSums(df, sums, [&](size_t row) HWY_ATTR {
      return first + (row < heads ? to.scores + row * kPaTileKeys : to.squares);
    });
  }
}

// output[h] += sum over kStep keys of weights[h * kPaTileKeys + k] times their values.
template <size_t heads, class Codec>
HWY_INLINE void AccumulateStep(const Codec& codec, const typename Codec::Row (&rows)[kStep],
                               const float* HWY_RESTRICT weights, const StepShape& shape,
                               float* HWY_RESTRICT output) {
  const hn::ScalableTag<float> df;
  using V = hn::Vec<decltype(df)>;
  const size_t lanes = hn::Lanes(df);
  const auto read = [&](size_t h, size_t k)
                        HWY_ATTR { return InRegister(hn::Set(df, weights[h * kPaTileKeys + k])); };
  // 32 registers hold the weights of a step; where there are fewer, each is read when it is used.
  constexpr bool kHeld = kRegisters == 32;
  [[maybe_unused]] V held[heads][kStep];
  for (size_t h = 0; h < heads && kHeld; ++h) {
    for (size_t k = 0; k < kStep; ++k) held[h][k] = read(h, k);
  }
  const auto weight = [&](size_t h, size_t k) HWY_ATTR {
    if constexpr (kHeld) return held[h][k];
    return read(h, k);
  };
  ForVectors<Codec>(
      shape.size,
      [&](size_t d) HWY_ATTR {
        float* HWY_RESTRICT to = output + d;
        V sums[heads][2];
        for (size_t h = 0; h < heads; ++h) {
          sums[h][0] = hn::Load(df, to + h * shape.row_floats);
          sums[h][1] = hn::Load(df, to + h * shape.row_floats + lanes);
        }
        for (size_t k = 0; k < kStep; ++k) {
          V a, b;
          codec.LoadTwo(df, rows[k], d, a, b);
          for (size_t h = 0; h < heads; ++h) {
            const V w = weight(h, k);
            sums[h][0] = hn::MulAdd(w, a, sums[h][0]);
            sums[h][1] = hn::MulAdd(w, b, sums[h][1]);
          }
        }
        for (size_t h = 0; h < heads; ++h) {
          hn::Store(sums[h][0], df, to + h * shape.row_floats);
          hn::Store(sums[h][1], df, to + h * shape.row_floats + lanes);
        }
      },
      [&](size_t d, size_t count) HWY_ATTR {
        for (size_t h = 0; h < heads; ++h) {
          float* HWY_RESTRICT to = output + h * shape.row_floats + d;
          V sum = hn::Load(df, to);
          for (size_t k = 0; k < kStep; ++k) {
            sum = hn::MulAdd(weight(h, k), LoadUpTo(df, codec, rows[k], d, count), sum);
          }
          hn::Store(sum, df, to);
        }
      });
}

// Calls f.operator()<n>(first head) for groups of query heads that together are `group`.
template <class F>
HWY_INLINE void ForHeads(size_t group, const F& f) {
  size_t h = 0;
  for (; h + kMaxHeads <= group; h += kMaxHeads) f.template operator()<kMaxHeads>(h);
  static_assert(kMaxHeads == 4);
  if (h + 3 == group) return f.template operator()<3>(h);
  if (h + 2 == group) return f.template operator()<2>(h);
  if (h + 1 == group) return f.template operator()<1>(h);
}

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#endif  // toggle
