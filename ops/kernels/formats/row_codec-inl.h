// SPDX-License-Identifier: Apache-2.0
// Vectors of cache rows: the same bytes and numbers as EncodeRow and DecodeRow. Include inside a
// file that hwy/foreach_target.h recompiles.
//
// A codec is a small value with
//
//   Element                     type of a stored element
//   kRowScale                   whether rows have scales of their own
//   Open(RowAddress) -> Row     reads the row's scale (and zero point) once
//   Load(df, row, d) -> Vec     codes of elements [d, d + Lanes(df)); reads exactly their bytes
//   LoadN(df, row, d, count)    the same for at most Lanes(df) elements, zeros behind them
//   row.scale                   element = code * scale: may be applied to a whole dot product
//   LoadTwo(df, row, d, a, b)   the next two vectors, each code / kUnit; with kEvenOdd a has
//                               elements d, d + 2, ..., b has d + 1, d + 3, ...
//   kUnitLength                 a row is divided by its length if codec.norm_correction says so: its
//                               factor is known when all of it has been read
//   kRowOffset                  element = code * scale + row.offset
//
// and to write rows
//
//   Store(x, n, row, scratch)   encodes x[0, n), of any type that LoadToFloat takes, with n floats
//                               of scratch
//   Scale(x, n)                 of codecs with row scales: Store in two steps, so that the
//   StoreScaled(x, n, row, s)   scales of several rows are made side by side (StoreRows)
//   Transform(x, n, y)          of some of these, before: both take y, n floats, for x
//
// No pointer needs alignment. Formats whose scale changes within a row (one for 64 or 128 elements)
// fit too: their Load multiplies, and their row.scale is 1.
//
// The views of a format (RowViews) are the codecs that it has for each use.
#if defined(PAGEFUSE_KERNELS_FORMATS_ROW_CODEC_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAGEFUSE_KERNELS_FORMATS_ROW_CODEC_INL_H_
#undef PAGEFUSE_KERNELS_FORMATS_ROW_CODEC_INL_H_
#else
#define PAGEFUSE_KERNELS_FORMATS_ROW_CODEC_INL_H_
#endif

#include <algorithm>
#include <cstring>

#include "hwy/highway.h"

#include "pagefuse/ops/kernels/formats/cache_format.h"
#include "pagefuse/ops/kernels/numeric/convert-inl.h"
#include "pagefuse/ops/kernels/numeric/float_pairs-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Rows of plain elements, and the base of formats with one code an element.
template <typename T, bool row_scale>
struct ElementCodec {
  using Element = T;
  static constexpr bool kRowScale = row_scale;
  static constexpr float kUnit = FloatPairs<T>::kUnit;
  static constexpr bool kEvenOdd = FloatPairs<T>::kEvenOdd;
  static constexpr bool kUnitLength = false;
  static constexpr bool kRowOffset = false;
  struct Row {
    const T* data;
    float scale;
  };

  float tensor_scale = 1.0f;

  HWY_INLINE Row Open(RowAddress row) const {
    Row opened{reinterpret_cast<const T*>(row.data), tensor_scale};
    if constexpr (row_scale) std::memcpy(&opened.scale, row.scale, sizeof(float));
    return opened;
  }
  template <class DF>
  HWY_INLINE hn::Vec<DF> Load(DF df, const Row& row, size_t d) const {
    return LoadToFloat(df, row.data + d);
  }
  template <class DF>
  HWY_INLINE hn::Vec<DF> LoadN(DF df, const Row& row, size_t d, size_t count) const {
    return LoadToFloatN(df, row.data + d, count);
  }
  template <class DF, class V>
  HWY_INLINE void LoadTwo(DF df, const Row& row, size_t d, V& a, V& b) const {
    FloatPairs<T>::Load(df, row.data + d, a, b);
  }
};

template <typename T>
struct PlainCodec : ElementCodec<T, false> {
  template <typename From>
  HWY_INLINE void Store(const From* HWY_RESTRICT x, size_t n, RowAddress row,
                        float* /*scratch*/) const {
    ConvertArray(x, n, reinterpret_cast<T*>(row.data));
  }
};

// The views of a format whose keys and values are rows of `Codec`, as words of `WordCodec`
// (words-inl.h) where that has any. Scales of a whole tensor are left to who reads, who applies them
// to scores and outputs. A format's own struct Views derives from this and adds
//   Writer(format, params)   the codec that stores rows
template <class Views, class Codec, class WordCodec = Codec>
struct RowViews {
  static constexpr bool kHasWords = requires { typename WordCodec::Word; };

  // Whole rows, and rows as the loops of decoding take them.
  static HWY_INLINE Codec Keys() { return Codec(); }
  static HWY_INLINE Codec Values() { return Codec(); }
  static HWY_INLINE Codec DecodeKeys() { return Codec(); }
  static HWY_INLINE Codec DecodeValues() { return Codec(); }
  static HWY_INLINE WordCodec KeyWords() requires kHasWords { return WordCodec(); }
  static HWY_INLINE WordCodec ValueWords() requires kHasWords { return WordCodec(); }

  // Calls f(views) with the views of what is stored: more than one where elements have any type.
  template <class F>
  static HWY_INLINE void Call(const CacheFormat& /*format*/, const F& f) {
    f(Views());
  }
};

// Rows of n elements, one behind the other, and where the codec is to store them.
template <typename From>
struct RowsToStore {
  const From* x;
  size_t n;
  int64_t count;
  RowAddress first;
  CacheRows::Strides data_strides, scale_strides;

  const From* source(int64_t i) const { return x + i * static_cast<int64_t>(n); }
  RowAddress row(int64_t i) const {
    return {first.data + i * data_strides.head,
            first.scale == nullptr ? nullptr : first.scale + i * scale_strides.head};
  }
  RowsToStore Part(int64_t begin, int64_t most) const {
    return {source(begin), n, std::min(most, count - begin), row(begin), data_strides,
            scale_strides};
  }
};

// Rows that StoreRows takes step by step.
inline constexpr int64_t kRowsAtOnce = 8;

// Store of at most kRowsAtOnce rows in two steps.
template <class Codec, typename From>
HWY_INLINE void StoreScaledRows(const Codec& codec, const RowsToStore<From>& rows) {
  decltype(codec.Scale(rows.x, rows.n)) scales[kRowsAtOnce];
  for (int64_t i = 0; i < rows.count; ++i) scales[i] = codec.Scale(rows.source(i), rows.n);
  for (int64_t i = 0; i < rows.count; ++i) {
    codec.StoreScaled(rows.source(i), rows.n, rows.row(i), scales[i]);
  }
}

// Store of each of them, with kRowsAtOnce * n floats of scratch.
template <class Codec, typename From>
HWY_INLINE void StoreRows(const Codec& codec, const RowsToStore<From>& rows, float* scratch) {
  for (int64_t begin = 0; begin < rows.count; begin += kRowsAtOnce) {
    const RowsToStore<From> part = rows.Part(begin, kRowsAtOnce);
    if constexpr (requires { codec.Transform(part.x, part.n, scratch); }) {
      const RowsToStore<float> transformed = {
          scratch, part.n, part.count, part.first, part.data_strides, part.scale_strides};
      for (int64_t i = 0; i < part.count; ++i) {
        codec.Transform(part.source(i), part.n, scratch + i * static_cast<int64_t>(part.n));
      }
      StoreScaledRows(codec, transformed);
    } else if constexpr (requires { codec.Scale(part.x, part.n); }) {
      StoreScaledRows(codec, part);
    } else {
      for (int64_t i = 0; i < part.count; ++i) {
        codec.Store(part.source(i), part.n, part.row(i), scratch);
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#endif  // toggle
