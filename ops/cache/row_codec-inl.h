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
//   Scale(x, n)                 of some codecs with row scales: Store in two steps, so that the
//   StoreScaled(x, n, row, s)   scales of several rows are made side by side (StoreRows)
//
// No pointer needs alignment. Formats whose scale changes within a row (one for 64 or 128 elements)
// fit too: their Load multiplies, and their row.scale is 1.
#if defined(PAGEFUSE_OPS_CACHE_ROW_CODEC_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAGEFUSE_OPS_CACHE_ROW_CODEC_INL_H_
#undef PAGEFUSE_OPS_CACHE_ROW_CODEC_INL_H_
#else
#define PAGEFUSE_OPS_CACHE_ROW_CODEC_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstring>

#include "hwy/highway.h"

#include "pagefuse/ops/cache/cache_format.h"
#include "pagefuse/ops/cache/row_codec.h"
#include "pagefuse/ops/numeric/convert-inl.h"
#include "pagefuse/ops/numeric/packing.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Largest magnitude of x[0, n).
template <typename From>
HWY_INLINE float LargestMagnitude(const From* HWY_RESTRICT x, size_t n) {
  const hn::ScalableTag<float> df;
  const size_t lanes = hn::Lanes(df);
  // x86 takes the second operand where one is NaN.
  const auto take = [&](auto v, auto& largest) HWY_ATTR { largest = hn::Max(hn::Abs(v), largest); };
  constexpr size_t kAtATime = 4;  // one would wait for itself
  hn::Vec<decltype(df)> largest[kAtATime];
  for (auto& v : largest) v = hn::Zero(df);
  size_t i = 0;
  for (; i + kAtATime * lanes <= n; i += kAtATime * lanes) {
    for (size_t k = 0; k < kAtATime; ++k) take(LoadToFloat(df, x + i + k * lanes), largest[k]);
  }
  for (; i + lanes <= n; i += lanes) take(LoadToFloat(df, x + i), largest[0]);
  if (i < n) take(LoadToFloatN(df, x + i, n - i), largest[0]);
  const auto all = hn::Max(hn::Max(largest[0], largest[1]), hn::Max(largest[2], largest[3]));
  return hn::GetLane(hn::MaxOfLanes(df, all));
}

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

// Rows of n elements, one behind the other, and where the codec is to store them.
template <typename From>
struct RowsToStore {
  const From* x;
  size_t n;
  int64_t count;
  RowAddress first;
  CacheRows::Strides data_strides, scale_strides;

  RowAddress row(int64_t i) const {
    return {first.data + i * data_strides.head,
            first.scale == nullptr ? nullptr : first.scale + i * scale_strides.head};
  }
};

// Store of each of them.
template <class Codec, typename From>
HWY_INLINE void StoreRows(const Codec& codec, const RowsToStore<From>& rows, float* scratch) {
  const auto x = [&](int64_t i) { return rows.x + i * static_cast<int64_t>(rows.n); };
  if constexpr (requires { codec.Scale(rows.x, rows.n); }) {
    constexpr int64_t kAtATime = 8;
    for (int64_t begin = 0; begin < rows.count; begin += kAtATime) {
      const int64_t count = std::min(kAtATime, rows.count - begin);
      float scales[kAtATime];
      for (int64_t i = 0; i < count; ++i) scales[i] = codec.Scale(x(begin + i), rows.n);
      for (int64_t i = 0; i < count; ++i) {
        codec.StoreScaled(x(begin + i), rows.n, rows.row(begin + i), scales[i]);
      }
    }
  } else {
    for (int64_t i = 0; i < rows.count; ++i) codec.Store(x(i), rows.n, rows.row(i), scratch);
  }
}

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

  template <typename From>
  HWY_INLINE void Store(const From* HWY_RESTRICT x, size_t n, RowAddress row,
                        float* HWY_RESTRICT scratch) const {
    ConvertArray(x, n, scratch);
    StoreScratch(scratch, n, row);
  }

 private:
  // Encodes y[0, n), and changes it.
  HWY_INLINE void StoreScratch(float* HWY_RESTRICT y, size_t n, RowAddress row) const;
};

// Sums and differences of lanes at `distance`, a power of two below the number of lanes.
template <class DF, class V = hn::Vec<DF>>
HWY_INLINE V ButterflyLanes(DF df, V v, uint32_t distance) {
  const hn::RebindToUnsigned<DF> du;
  const auto lane = hn::Iota(du, 0);
  const auto partner = hn::Xor(lane, hn::Set(du, distance));
  const auto other = hn::TableLookupLanes(v, hn::IndicesFromVec(df, partner));
  const auto is_second = hn::Gt(lane, partner);
  return hn::Add(other, hn::IfThenElse(hn::RebindMask(df, is_second), hn::Neg(v), v));
}

// The butterflies at distances below count * lanes of as many elements, in registers.
template <size_t count>
HWY_INLINE void ButterflyVectors(float* HWY_RESTRICT x) {
  const hn::ScalableTag<float> df;
  const size_t lanes = hn::Lanes(df);
  hn::Vec<decltype(df)> v[count];
  for (size_t i = 0; i < count; ++i) v[i] = hn::LoadU(df, x + i * lanes);
  for (uint32_t distance = 1; distance < lanes; distance *= 2) {
    for (size_t i = 0; i < count; ++i) v[i] = ButterflyLanes(df, v[i], distance);
  }
  for (size_t distance = 1; distance < count; distance *= 2) {
    for (size_t i = 0; i < count; ++i) {
      if ((i & distance) != 0) continue;
      const auto a = v[i];
      v[i] = hn::Add(a, v[i + distance]);
      v[i + distance] = hn::Sub(a, v[i + distance]);
    }
  }
  for (size_t i = 0; i < count; ++i) hn::StoreU(v[i], df, x + i * lanes);
}

// Butterflies of HadamardTransform; the order of additions is the same, so the result is too.
HWY_INLINE void HadamardVectors(float* HWY_RESTRICT x, size_t n) {
  const hn::ScalableTag<float> df;
  const size_t lanes = hn::Lanes(df);
  constexpr size_t kAtATime = 8;
  size_t first = 1;
  if (lanes > 1 && n >= kAtATime * lanes) {
    for (size_t i = 0; i < n; i += kAtATime * lanes) ButterflyVectors<kAtATime>(x + i);
    first = kAtATime * lanes;
  } else if (lanes > 1 && n >= lanes) {
    for (size_t i = 0; i < n; i += lanes) ButterflyVectors<1>(x + i);
    first = lanes;
  }
  for (size_t distance = first; distance < n; distance *= 2) {
    for (size_t start = 0; start < n; start += 2 * distance) {
      size_t i = start;
      for (; i + lanes <= start + distance; i += lanes) {
        const auto a = hn::LoadU(df, x + i);
        const auto b = hn::LoadU(df, x + i + distance);
        hn::StoreU(hn::Add(a, b), df, x + i);
        hn::StoreU(hn::Sub(a, b), df, x + i + distance);
      }
      for (; i < start + distance; ++i) {
        const float a = x[i];
        const float b = x[i + distance];
        x[i] = a + b;
        x[i + distance] = a - b;
      }
    }
  }
}

// Rounds x[0, n) to the 16-bit type and back.
template <typename T>
HWY_INLINE void RoundThroughVectors(float* HWY_RESTRICT x, size_t n) {
  const hn::ScalableTag<float> df;
  const size_t lanes = hn::Lanes(df);
  alignas(64) T buffer[hn::MaxLanes(df)];
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    StoreFromFloat(hn::LoadU(df, x + i), df, buffer);
    hn::StoreU(LoadToFloat(df, buffer), df, x + i);
  }
  for (; i < n; ++i) x[i] = static_cast<float>(T(x[i]));
}

HWY_INLINE void Int4HeadCodec::StoreScratch(float* HWY_RESTRICT y, size_t n, RowAddress row) const {
  for (size_t i = 0; i < n; ++i) y[i] *= signs[i];
  HadamardVectors(y, n);
  if (source_type == DataType::kFloat16) RoundThroughVectors<Float16>(y, n);
  if (source_type == DataType::kBfloat16) RoundThroughVectors<Bfloat16>(y, n);
  const auto [low, high] = std::minmax_element(y, y + n);
  const float scale = std::max((*high - *low) / kInt4Max, kScaleFloor);
  const float zero_point = std::min(std::max(std::round(-*low / scale), 0.0f), kInt4Max);
  // Half away from zero: below zero the clamp decides alone, so adding one where the fraction is a
  // half or more is enough.
  const auto quantise = [&](float value) HWY_ATTR {
    const float v = std::min(std::max(value / scale + zero_point, 0.0f), kInt4Max);
    const float whole = static_cast<float>(static_cast<int>(v));
    return static_cast<uint8_t>(whole + (v - whole >= 0.5f ? 1.0f : 0.0f));
  };
  for (size_t i = 0; i + 1 < n; i += 2) {
    row.data[i / 2] = static_cast<uint8_t>(quantise(y[i]) | quantise(y[i + 1]) << 4);
  }
  if (n % 2 == 1) row.data[n / 2] = quantise(y[n - 1]);
  const float stored = PackZeroPoint(scale, zero_point);
  std::memcpy(row.scale, &stored, sizeof(stored));
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
