// Vector codecs of the cache formats, for kernels: the same bytes as EncodeRow and DecodeRow.
// Include inside a file that hwy/foreach_target.h recompiles.
//
// A codec C is a small value with
//
//   C::Element                  type of a stored element
//   C::kRowScale                whether rows have scales of their own
//   Open(RowAddress) -> Row     reads the row's scale (and zero point) once
//   Load(df, row, d) -> Vec     codes of elements [d, d + Lanes(df)); reads exactly their bytes
//   LoadN(df, row, d, count)    the same for at most Lanes(df) elements, zeros behind them
//   row.scale                   element = code * scale: may be applied to a whole dot product
//   Store(x, n, row, scratch)   encodes x[0, n), of any type that LoadToFloat takes, with n floats
//                               of scratch
//   Scale(x, n)                 of codecs with row scales: Store in two steps, so that the
//   StoreScaled(x, n, row, s)   scales of several rows are made side by side (StoreRows)
//   Transform(x, n, y)          of some of these, before: both take y, n floats, for x
//
// No pointer needs alignment. Formats whose scale changes within a row (one for 64 or 128 elements)
// fit too: their Load multiplies, and their row.scale is 1.
#if defined(PAGEFUSE_KERNELS_FORMATS_ROW_CODEC_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAGEFUSE_KERNELS_FORMATS_ROW_CODEC_INL_H_
#undef PAGEFUSE_KERNELS_FORMATS_ROW_CODEC_INL_H_
#else
#define PAGEFUSE_KERNELS_FORMATS_ROW_CODEC_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstring>

#include "hwy/highway.h"

#include "pagefuse/kernels/formats/cache_format.h"
#include "pagefuse/kernels/formats/pack_codes-inl.h"
#include "pagefuse/kernels/formats/row_codec.h"
#include "pagefuse/kernels/numeric/convert-inl.h"
#include "pagefuse/kernels/numeric/extremes-inl.h"
#include "pagefuse/kernels/numeric/hadamard-inl.h"
#include "pagefuse/kernels/numeric/packing.h"
#include "pagefuse/kernels/numeric/round_through-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Rows of plain elements: mode none, and the base of the modes with one code an element.
template <typename T, bool row_scale>
struct ElementCodec {
  using Element = T;
  static constexpr bool kRowScale = row_scale;
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
};

template <typename T>
struct PlainCodec : ElementCodec<T, false> {
  template <typename From>
  HWY_INLINE void Store(const From* HWY_RESTRICT x, size_t n, RowAddress row,
                        float* /*scratch*/) const {
    ConvertArray(x, n, reinterpret_cast<T*>(row.data));
  }
};

struct Fp8TensorCodec : ElementCodec<Float8E4M3FN, false> {
  template <typename From>
  HWY_INLINE void Store(const From* HWY_RESTRICT x, size_t n, RowAddress row,
                        float* /*scratch*/) const {
    const hn::ScalableTag<float> df;
    auto* to = reinterpret_cast<Element*>(row.data);
    int exponent = 0;
    const float inverse = 1.0f / tensor_scale;
    if (std::frexp(tensor_scale, &exponent) == 0.5f && std::isfinite(inverse)) {
      // A power of two, such as the 1 of a cache that was not calibrated: the product is exact.
      const auto factor = hn::Set(df, inverse);
      return TransformArray(x, n, to, [&](auto v) HWY_ATTR { return hn::Mul(v, factor); });
    }
    const auto scale = hn::Set(df, tensor_scale);
    TransformArray(x, n, to, [&](auto v) HWY_ATTR { return hn::Div(v, scale); });
  }
};

struct Fp8HeadCodec : ElementCodec<Float8E4M3FN, true> {
  template <typename From>
  HWY_INLINE float Scale(const From* HWY_RESTRICT x, size_t n) const {
    return std::max(LargestMagnitude(x, n) / kE4M3Max, kScaleFloor);
  }
  template <typename From>
  HWY_INLINE void StoreScaled(const From* HWY_RESTRICT x, size_t n, RowAddress row,
                              float scale) const {
    const hn::ScalableTag<float> df;
    const auto inverse = hn::Set(df, 1.0f / scale);
    TransformArray(x, n, reinterpret_cast<Element*>(row.data),
                   [&](auto v) HWY_ATTR { return hn::Mul(v, inverse); });
    std::memcpy(row.scale, &scale, sizeof(scale));
  }
  template <typename From>
  HWY_INLINE void Store(const From* HWY_RESTRICT x, size_t n, RowAddress row,
                        float* /*scratch*/) const {
    StoreScaled(x, n, row, Scale(x, n));
  }
};

template <Int8Rounding rounding>
struct Int8HeadCodec : ElementCodec<int8_t, true> {
  template <typename From>
  HWY_INLINE float Scale(const From* HWY_RESTRICT x, size_t n) const {
    return std::max(LargestMagnitude(x, n) / kInt8Max, kScaleFloor);
  }
  template <typename From>
  HWY_INLINE void StoreScaled(const From* HWY_RESTRICT x, size_t n, RowAddress row,
                              float scale) const {
    const hn::ScalableTag<float> df;
    const auto inverse = hn::Set(df, 1.0f / scale);
    TransformArray(x, n, reinterpret_cast<Element*>(row.data), [&](auto v) HWY_ATTR {
      const auto y = hn::Mul(v, inverse);
      if constexpr (rounding == Int8Rounding::kTowardZero) return hn::Trunc(y);
      return y;  // StoreFromFloat rounds to nearest even
    });
    std::memcpy(row.scale, &scale, sizeof(scale));
  }
  template <typename From>
  HWY_INLINE void Store(const From* HWY_RESTRICT x, size_t n, RowAddress row,
                        float* /*scratch*/) const {
    StoreScaled(x, n, row, Scale(x, n));
  }
};

// Two codes a byte; the row is in the space of the Hadamard transform.
struct Int4HeadCodec {
  using Element = uint8_t;
  static constexpr bool kRowScale = true;
  struct Row {
    const uint8_t* data;
    float scale;
    float zero_point;
  };

  const float* signs = nullptr;
  DataType source_type = DataType::kFloat;

  HWY_INLINE Row Open(RowAddress row) const {
    float stored;
    std::memcpy(&stored, row.scale, sizeof(stored));
    return {row.data, WithoutZeroPoint(stored), ZeroPointOf(stored)};
  }
  // d is even.
  template <class DF>
  HWY_INLINE hn::Vec<DF> Load(DF df, const Row& row, size_t d) const {
    if constexpr (hn::MaxLanes(df) == 1) {
      return hn::Set(df, GetNibble(row.data, static_cast<int64_t>(d)) - row.zero_point);
    } else {
      const hn::RebindToSigned<DF> di;
      const hn::Rebind<uint8_t, DF> du8;
      const hn::Half<decltype(du8)> packed;
      const hn::Rebind<uint16_t, decltype(packed)> pairs;
      // Byte hl becomes the bytes l, h.
      const auto wide = hn::PromoteTo(pairs, hn::LoadU(packed, row.data + d / 2));
      const auto low = hn::And(wide, hn::Set(pairs, 0x0F));
      const auto high = hn::ShiftLeft<4>(hn::And(wide, hn::Set(pairs, 0xF0)));
      const auto codes = hn::PromoteTo(di, hn::BitCast(du8, hn::Or(low, high)));
      return hn::Sub(hn::ConvertTo(df, codes), hn::Set(df, row.zero_point));
    }
  }
  template <class DF>
  HWY_INLINE hn::Vec<DF> LoadN(DF df, const Row& row, size_t d, size_t count) const {
    constexpr size_t kLanes = hn::MaxLanes(DF());
    alignas(64) uint8_t buffer[kLanes] = {};
    count = std::min(count, kLanes);
    std::memcpy(buffer, row.data + d / 2, (count + 1) / 2);
    const Row padded{buffer, row.scale, row.zero_point};
    return hn::IfThenElseZero(hn::FirstN(df, count), Load(df, padded, 0));
  }

  // y = x with the signs, in the space of the transform.
  template <typename From>
  HWY_INLINE void Transform(const From* HWY_RESTRICT x, size_t n, float* HWY_RESTRICT y) const {
    const hn::ScalableTag<float> df;
    const size_t lanes = hn::Lanes(df);
    size_t i = 0;
    for (; i + lanes <= n; i += lanes) {
      hn::StoreU(hn::Mul(LoadToFloat(df, x + i), hn::LoadU(df, signs + i)), df, y + i);
    }
    for (; i < n; ++i) y[i] = static_cast<float>(x[i]) * signs[i];
    HadamardVectors(y, n);
    if (source_type == DataType::kFloat16) RoundThroughVectors<Float16>(y, n);
    if (source_type == DataType::kBfloat16) RoundThroughVectors<Bfloat16>(y, n);
  }
  struct Affine {
    float scale;
    float zero_point;
  };
  // Of a row that is transformed, as what StoreScaled takes.
  HWY_INLINE Affine Scale(const float* HWY_RESTRICT y, size_t n) const {
    const auto [low, high] = RangeOf(y, n);
    const float scale = std::max((high - low) / kInt4Max, kScaleFloor);
    // 0 for NaN.
    return {scale, std::min(std::max(0.0f, std::round(-low / scale)), kInt4Max)};
  }
  HWY_INLINE void StoreScaled(const float* HWY_RESTRICT y, size_t n, RowAddress row,
                              Affine affine) const {
    const hn::ScalableTag<float> df;
    const auto quantise = [&](auto v) HWY_ATTR {
      const auto place =
          hn::Add(hn::Div(v, hn::Set(df, affine.scale)), hn::Set(df, affine.zero_point));
      // x86 takes the second operand where one is NaN.
      const auto clamped = hn::Min(hn::Max(place, hn::Zero(df)), hn::Set(df, kInt4Max));
      // Half away from zero. With 0.5 itself the number below that would become 1.
      return hn::ConvertTo(hn::RebindToSigned<decltype(df)>(),
                           hn::Add(clamped, hn::Set(df, 0x1.fffffep-2f)));
    };
    StoreCodes<4>(y, n, quantise, row.data);
    const float stored = PackZeroPoint(affine.scale, affine.zero_point);
    std::memcpy(row.scale, &stored, sizeof(stored));
  }
  template <typename From>
  HWY_INLINE void Store(const From* HWY_RESTRICT x, size_t n, RowAddress row,
                        float* HWY_RESTRICT scratch) const {
    Transform(x, n, scratch);
    StoreScaled(scratch, n, row, Scale(scratch, n));
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

// Calls f(codec) with the codec of `format`.
template <class F>
HWY_INLINE void WithRowCodec(const CacheFormat& format, const RowParams& params, const F& f) {
  switch (format.mode) {
    case KvQuantMode::kNone:
      if (format.element == DataType::kFloat) return f(PlainCodec<float>());
      if (format.element == DataType::kFloat16) return f(PlainCodec<Float16>());
      if (format.element == DataType::kBfloat16) return f(PlainCodec<Bfloat16>());
      return f(PlainCodec<Float8E4M3FN>());
    case KvQuantMode::kFp8PerTensor:
      return f(Fp8TensorCodec{{.tensor_scale = params.tensor_scale}});
    case KvQuantMode::kInt8PerTokenHead:
      if (format.int8_rounding == Int8Rounding::kTowardZero) {
        return f(Int8HeadCodec<Int8Rounding::kTowardZero>());
      }
      return f(Int8HeadCodec<Int8Rounding::kHalfEven>());
    case KvQuantMode::kFp8PerTokenHead:
      return f(Fp8HeadCodec());
    case KvQuantMode::kInt4PerTokenHead:
      return f(Int4HeadCodec{.signs = params.rht_signs, .source_type = params.source_type});
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#endif  // toggle
