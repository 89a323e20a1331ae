// SPDX-License-Identifier: Apache-2.0
// Rotation and encoding of TurboQuant slots with vectors: the bytes of EncodeTurboQuantKey and
// EncodeTurboQuantValue, but where a given rotation matrix sums in another order. Include inside a
// file that hwy/foreach_target.h recompiles.
#if defined(PAGEFUSE_KERNELS_FORMATS_TURBOQUANT_ENCODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAGEFUSE_KERNELS_FORMATS_TURBOQUANT_ENCODE_INL_H_
#undef PAGEFUSE_KERNELS_FORMATS_TURBOQUANT_ENCODE_INL_H_
#else
#define PAGEFUSE_KERNELS_FORMATS_TURBOQUANT_ENCODE_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "hwy/highway.h"

#include "pagefuse/ops/kernels/formats/hadamard.h"
#include "pagefuse/ops/kernels/formats/pack_codes-inl.h"
#include "pagefuse/ops/kernels/formats/turboquant_codec-inl.h"
#include "pagefuse/ops/kernels/formats/turboquant_format.h"
#include "pagefuse/ops/kernels/numeric/extremes-inl.h"
#include "pagefuse/ops/kernels/numeric/fold_lanes-inl.h"
#include "pagefuse/ops/kernels/numeric/hadamard-inl.h"
#include "pagefuse/ops/kernels/numeric/sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

HWY_INLINE float DotProduct(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, size_t n) {
  const hn::ScalableTag<float> df;
  const size_t lanes = hn::Lanes(df);
  auto sum = hn::Zero(df);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    sum = hn::MulAdd(hn::LoadU(df, a + i), hn::LoadU(df, b + i), sum);
  }
  if (i < n) {
    sum = hn::MulAdd(LoadToFloatN(df, a + i, n - i), LoadToFloatN(df, b + i, n - i), sum);
  }
  return hn::GetLane(hn::SumOfLanes(df, sum));
}

#if HWY_TARGET != HWY_SCALAR
// to[0, 4) = x times four rows of a matrix, one behind the other.
HWY_INLINE void FourDotProducts(const float* HWY_RESTRICT matrix, const float* HWY_RESTRICT x,
                                size_t n, float* HWY_RESTRICT to) {
  const hn::ScalableTag<float> df;
  const size_t lanes = hn::Lanes(df);
  // No array: the compiler would keep it in memory.
  auto a = hn::Zero(df), b = a, c = a, d = a;
  const auto add = [&](size_t i, const auto& load) HWY_ATTR {
    const auto v = load(x + i);
    a = hn::MulAdd(load(matrix + i), v, a);
    b = hn::MulAdd(load(matrix + n + i), v, b);
    c = hn::MulAdd(load(matrix + 2 * n + i), v, c);
    d = hn::MulAdd(load(matrix + 3 * n + i), v, d);
  };
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    add(i, [&](const float* p) HWY_ATTR { return hn::LoadU(df, p); });
  }
  if (i < n) {
    add(i, [&](const float* p) HWY_ATTR { return LoadToFloatN(df, p, n - i); });
  }
  hn::StoreU(FoldFour<LaneSum>(df, a, b, c, d), hn::Full128<float>(), to);
}
#endif

// y = matrix x, [n, n].
HWY_INLINE void MatrixTimesRow(const float* HWY_RESTRICT matrix, const float* HWY_RESTRICT x,
                               size_t n, float* HWY_RESTRICT y) {
  size_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  for (; i + 4 <= n; i += 4) FourDotProducts(matrix + i * n, x, n, y + i);
#endif
  for (; i < n; ++i) y[i] = DotProduct(matrix + i * n, x, n);
}

// y = P x; see RotateTurboQuant.
HWY_INLINE void RotateTurboRow(const float* HWY_RESTRICT rotation, const float* HWY_RESTRICT x,
                               size_t n, float* HWY_RESTRICT y) {
  if (rotation == nullptr) {
    std::memcpy(y, x, n * sizeof(float));
    HadamardRotateVectors(y, n);
    return;
  }
  MatrixTimesRow(rotation, x, n, y);
}

// How many of 2^bits - 1 ascending borders a number reaches.
template <int bits>
class Borders {
  using DF = hn::ScalableTag<float>;
  using DI = hn::RebindToSigned<DF>;
  using V = hn::Vec<DF>;
  static constexpr int32_t kCount = 1 << bits;

 public:
#if PF_PERMUTES_FLOATS
  // borders[0, 2^bits), the last infinity.
  explicit HWY_INLINE Borders(const float* borders)
      : middle_(borders[kCount / 2 - 1]),
        second_(BordersAfter(borders, kCount / 4)),
        third_(BordersAfter(borders, kCount / 8)),
        fourth_(BordersAfter(borders, 1)) {}

  // Bit by bit from the highest.
  HWY_INLINE hn::Vec<DI> Reached(V v) const {
    const DI di;
    auto index = hn::Zero(di);
    const auto take = [&](V border, int32_t step) HWY_ATTR {
      const auto reached = hn::RebindMask(di, hn::Ge(v, border));
      index = hn::Or(index, hn::IfThenElseZero(reached, hn::Set(di, step)));
    };
    take(hn::Set(DF(), middle_), kCount / 2);
    take(second_.Get(index), kCount / 4);
    take(third_.Get(index), kCount / 8);
    if constexpr (bits == 4) take(fourth_.Get(index), 1);
    return index;
  }

 private:
  // Which border decides about `step` when these many are reached.
  static HWY_INLINE FloatTable<bits> BordersAfter(const float* borders, int32_t step) {
    float after[kCount];
    for (int32_t i = 0; i < kCount; ++i) after[i] = borders[std::min(i + step, kCount) - 1];
    return FloatTable<bits>(after);
  }

  float middle_;
  FloatTable<bits> second_, third_, fourth_;
#else
  explicit HWY_INLINE Borders(const float* borders) : borders_(borders) {}

  HWY_INLINE hn::Vec<DI> Reached(V v) const {
    const DI di;
    auto index = hn::Zero(di);
    for (int32_t i = 0; i + 1 < kCount; ++i) {
      const auto reached = hn::Ge(v, hn::Set(DF(), borders_[i]));
      index = hn::Sub(index, hn::VecFromMask(di, hn::RebindMask(di, reached)));
    }
    return index;
  }

 private:
  const float* borders_;
#endif
};

// Where a row of a source is, and the slot that it goes to.
template <typename From>
struct TurboQuantRow {
  const From* x;
  uint8_t* slot;
};

// Writes slots. Keeps memory for a few rows, so that many are written without allocation.
class TurboQuantWriter {
 public:
  // What these have to wait for is found for so many rows before any codes, side by side.
  static constexpr size_t kRowsAtOnce = 8;
  template <typename From>
  using Rows = std::span<const TurboQuantRow<From>>;  // at most kRowsAtOnce

  TurboQuantWriter(const TurboQuantFormat& format, const TurboQuantTables& tables)
      : format_(format),
        rotation_(tables.rotation),
        size_(static_cast<size_t>(format.head_size)),
        entry_(rotation_ == nullptr ? HadamardEntry(format.head_size) : 1.0f),
        floats_((kRowsAtOnce + 1) * size_) {
    std::fill(std::begin(midpoints_), std::end(midpoints_), std::numeric_limits<float>::infinity());
    if (!format.has_centroids()) return;
    const std::vector<float> midpoints =
        Midpoints({tables.centroids, static_cast<size_t>(format.NumCentroids())});
    std::copy(midpoints.begin(), midpoints.end(), midpoints_);
  }

  template <typename From>
  HWY_INLINE void StoreKeys(Rows<From> rows) {
    if (!format_.has_centroids()) {
      for (const auto& row : rows) {
        ConvertArray(row.x, size_, reinterpret_cast<Float8E4M3FN*>(row.slot));
      }
    } else if (format_.key_bits == 3) {
      StoreCodedKeys<3>(rows);
    } else {
      StoreCodedKeys<4>(rows);
    }
  }

  template <typename From>
  HWY_INLINE void StoreValues(Rows<From> rows) const {
    if (format_.value_bits == 3) {
      StoreCodedValues<3>(rows);
    } else {
      StoreCodedValues<4>(rows);
    }
  }

 private:
  static HWY_INLINE void StoreHalf(float x, uint8_t* to) {
    const Float16 half(x);
    std::memcpy(to, &half.bits, sizeof(half.bits));
  }

  template <int bits, typename From>
  HWY_INLINE void StoreCodedKeys(Rows<From> rows) {
    const Borders<bits> borders(midpoints_);
    float norms[kRowsAtOnce];
    for (size_t r = 0; r < rows.size(); ++r) norms[r] = std::sqrt(SumOfSquares(rows[r].x, size_));
    float* HWY_RESTRICT y = floats_.data();
    for (size_t r = 0; r < rows.size(); ++r) {
      Rotate(rows[r].x, norms[r] + kTurboQuantNormFloor, y + r * size_);
    }
    for (size_t r = 0; r < rows.size(); ++r) {
      const hn::ScalableTag<float> df;
      StoreCodes<bits>(
          y + r * size_, size_,
          [&](auto v) HWY_ATTR { return borders.Reached(hn::Mul(v, hn::Set(df, entry_))); },
          rows[r].slot);
      StoreHalf(norms[r], rows[r].slot + format_.KeyDataBytes());
    }
  }

  // y = the rotation of x / divisor without the factor entry_.
  template <typename From>
  HWY_INLINE void Rotate(const From* HWY_RESTRICT x, float divisor, float* HWY_RESTRICT y) {
    const hn::ScalableTag<float> df;
    float* HWY_RESTRICT unit = rotation_ == nullptr ? y : floats_.data() + kRowsAtOnce * size_;
    TransformArray(x, size_, unit,
                   [&](auto v) HWY_ATTR { return hn::Div(v, hn::Set(df, divisor)); });
    if (rotation_ == nullptr) {
      HadamardVectors(y, size_);
    } else {
      MatrixTimesRow(rotation_, unit, size_, y);
    }
  }

  template <int bits, typename From>
  HWY_INLINE void StoreCodedValues(Rows<From> rows) const {
    const hn::ScalableTag<float> df;
    constexpr float kMost = (1 << bits) - 1;
    float lows[kRowsAtOnce];
    float scales[kRowsAtOnce];
    for (size_t r = 0; r < rows.size(); ++r) {
      const auto [low, high] = RangeOf(rows[r].x, size_);
      lows[r] = low;
      scales[r] = (high - low) / kMost;
      if (!(scales[r] > kTurboQuantScaleFloor)) scales[r] = kTurboQuantScaleFloor;
    }
    for (size_t r = 0; r < rows.size(); ++r) {
      uint8_t* to = rows[r].slot + format_.KeyBytes();
      const auto low = hn::Set(df, lows[r]);
      const auto scale = hn::Set(df, scales[r]);
      StoreCodes<bits>(
          rows[r].x, size_,
          [&](auto v) HWY_ATTR {
            const auto place = hn::Add(hn::Div(hn::Sub(v, low), scale), hn::Set(df, 0.5f));
            // x86 takes the second operand where one is NaN.
            const auto clamped = hn::Min(hn::Max(place, hn::Zero(df)), hn::Set(df, kMost));
            return hn::ConvertTo(hn::RebindToSigned<decltype(df)>(), clamped);
          },
          to);
      StoreHalf(scales[r], to + format_.ValueDataBytes());
      StoreHalf(lows[r], to + format_.ValueDataBytes() + 2);
    }
  }

  const TurboQuantFormat format_;
  const float* rotation_;
  const size_t size_;
  const float entry_;
  std::vector<float> floats_;
  float midpoints_[16];  // infinity behind the last
};

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#endif  // toggle
