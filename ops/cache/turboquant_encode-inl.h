// Rotation and encoding of TurboQuant slots with vectors: the bytes of EncodeTurboQuantKey and
// EncodeTurboQuantValue, but where a given rotation matrix sums in another order. Include inside a
// file that hwy/foreach_target.h recompiles.
#if defined(PAGEFUSE_OPS_CACHE_TURBOQUANT_ENCODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAGEFUSE_OPS_CACHE_TURBOQUANT_ENCODE_INL_H_
#undef PAGEFUSE_OPS_CACHE_TURBOQUANT_ENCODE_INL_H_
#else
#define PAGEFUSE_OPS_CACHE_TURBOQUANT_ENCODE_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "hwy/highway.h"

#include "pagefuse/ops/cache/row_codec-inl.h"
#include "pagefuse/ops/cache/turboquant_codec-inl.h"
#include "pagefuse/ops/cache/turboquant_format.h"
#include "pagefuse/ops/numeric/sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// x[0, n) *= factor.
HWY_INLINE void ScaleVectors(float* HWY_RESTRICT x, size_t n, float factor) {
  const hn::ScalableTag<float> df;
  const size_t lanes = hn::Lanes(df);
  const size_t whole = n / lanes * lanes;
  for (size_t i = 0; i < whole; i += lanes) {
    hn::StoreU(hn::Mul(hn::LoadU(df, x + i), hn::Set(df, factor)), df, x + i);
  }
  for (size_t i = whole; i < n; ++i) x[i] *= factor;
}

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

// y = P x; see RotateTurboQuant.
HWY_INLINE void RotateTurboRow(const float* HWY_RESTRICT rotation, const float* HWY_RESTRICT x,
                               size_t n, float* HWY_RESTRICT y) {
  if (rotation == nullptr) {
    std::memcpy(y, x, n * sizeof(float));
    HadamardVectors(y, n);
    ScaleVectors(y, n, HadamardEntry(static_cast<int64_t>(n)));
    return;
  }
  for (size_t i = 0; i < n; ++i) y[i] = DotProduct(rotation + i * n, x, n);
}

// PackBits, eight codes a lane at a time: neighbours are joined in wider and wider fields.
template <int bits>
HWY_INLINE void PackCodes(const uint8_t* HWY_RESTRICT codes, size_t n, uint8_t* HWY_RESTRICT to) {
  const hn::ScalableTag<uint64_t> d;
  const size_t lanes = hn::Lanes(d);
  const auto two = hn::Set(d, 0x0001000100010001u * ((1u << 2 * bits) - 1));
  const auto four = hn::Set(d, 0x0000000100000001u * ((uint64_t{1} << 4 * bits) - 1));
  alignas(64) uint64_t packed[hn::MaxLanes(d)];
  size_t i = 0;
  for (; i + 8 * lanes <= n; i += 8 * lanes) {
    std::memcpy(packed, codes + i, 8 * lanes);
    auto w = hn::Load(d, packed);
    w = hn::And(hn::Or(w, hn::ShiftRight<8 - bits>(w)), two);
    w = hn::And(hn::Or(w, hn::ShiftRight<16 - 2 * bits>(w)), four);
    w = hn::Or(w, hn::ShiftRight<32 - 4 * bits>(w));
    hn::Store(w, d, packed);
    for (size_t k = 0; k < lanes; ++k) std::memcpy(to + i * bits / 8 + k * bits, &packed[k], bits);
  }
  if (i < n) PackBits<bits>(codes + i, static_cast<int64_t>(n - i), to + i * bits / 8);
}

// Writes slots. Keeps memory for a row, so that many are written without allocation.
class TurboQuantWriter {
 public:
  TurboQuantWriter(const TurboQuantFormat& format, const TurboQuantTables& tables)
      : format_(format),
        rotation_(tables.rotation),
        size_(static_cast<size_t>(format.head_size)),
        floats_(2 * size_),
        codes_(size_) {
    std::fill(std::begin(midpoints_), std::end(midpoints_), std::numeric_limits<float>::infinity());
    if (!format.has_centroids()) return;
    const std::vector<float> midpoints =
        Midpoints({tables.centroids, static_cast<size_t>(format.NumCentroids())});
    std::copy(midpoints.begin(), midpoints.end(), midpoints_);
  }

  HWY_INLINE void StoreKey(const float* HWY_RESTRICT key, uint8_t* HWY_RESTRICT slot) {
    if (!format_.has_centroids()) {
      ConvertArray(key, size_, reinterpret_cast<Float8E4M3FN*>(slot));
      return;
    }
    const float norm = std::sqrt(SumOfSquares(key, size_));
    const hn::ScalableTag<float> df;
    const size_t lanes = hn::Lanes(df);
    const float divisor = norm + kTurboQuantNormFloor;
    float* HWY_RESTRICT x = floats_.data();
    float* HWY_RESTRICT y = x + size_;
    size_t d = 0;
    for (; d + lanes <= size_; d += lanes) {
      hn::StoreU(hn::Div(hn::LoadU(df, key + d), hn::Set(df, divisor)), df, x + d);
    }
    for (; d < size_; ++d) x[d] = key[d] / divisor;
    RotateTurboRow(rotation_, x, size_, y);
    if (format_.key_bits == 3) {
      StoreIndices<3>(y, slot);
    } else {
      StoreIndices<4>(y, slot);
    }
    StoreHalf(norm, slot + format_.KeyDataBytes());
  }

  HWY_INLINE void StoreValue(const float* HWY_RESTRICT value, uint8_t* HWY_RESTRICT slot) {
    const hn::ScalableTag<float> df;
    const size_t lanes = hn::Lanes(df);
    auto lows = hn::Set(df, value[0]);
    auto highs = lows;
    size_t d = 0;
    for (; d + lanes <= size_; d += lanes) {
      const auto v = hn::LoadU(df, value + d);
      lows = hn::Min(v, lows);
      highs = hn::Max(v, highs);
    }
    float low = hn::GetLane(hn::MinOfLanes(df, lows));
    float high = hn::GetLane(hn::MaxOfLanes(df, highs));
    for (; d < size_; ++d) {
      low = std::min(low, value[d]);
      high = std::max(high, value[d]);
    }
    const auto most = static_cast<float>((1 << format_.value_bits) - 1);
    float scale = (high - low) / most;
    if (!(scale > kTurboQuantScaleFloor)) scale = kTurboQuantScaleFloor;
    ForCodes(value, [&](auto v) HWY_ATTR {
      const auto place =
          hn::Add(hn::Div(hn::Sub(v, hn::Set(df, low)), hn::Set(df, scale)), hn::Set(df, 0.5f));
      // x86 takes the second operand where one is NaN.
      const auto clamped = hn::Min(hn::Max(place, hn::Zero(df)), hn::Set(df, most));
      return hn::ConvertTo(hn::RebindToSigned<decltype(df)>(), clamped);
    });
    uint8_t* to = slot + format_.KeyBytes();
    if (format_.value_bits == 3) {
      PackCodes<3>(codes_.data(), size_, to);
    } else {
      PackCodes<4>(codes_.data(), size_, to);
    }
    StoreHalf(scale, to + format_.ValueDataBytes());
    StoreHalf(low, to + format_.ValueDataBytes() + 2);
  }

 private:
  static HWY_INLINE void StoreHalf(float x, uint8_t* to) {
    const Float16 half(x);
    std::memcpy(to, &half.bits, sizeof(half.bits));
  }

  // codes_ = encode(vector), for all vectors of x.
  template <class Encode>
  HWY_INLINE void ForCodes(const float* HWY_RESTRICT x, const Encode& encode) {
    const hn::ScalableTag<float> df;
    const hn::Rebind<uint8_t, decltype(df)> du8;
    const size_t lanes = hn::Lanes(df);
    size_t d = 0;
    for (; d + lanes <= size_; d += lanes) {
      hn::StoreU(hn::DemoteTo(du8, encode(hn::LoadU(df, x + d))), du8, codes_.data() + d);
    }
    if (d == size_) return;
    alignas(16) uint8_t rest[hn::MaxLanes(df)];
    hn::Store(hn::DemoteTo(du8, encode(LoadToFloatN(df, x + d, size_ - d))), du8, rest);
    std::copy_n(rest, size_ - d, codes_.data() + d);
  }

  // Packs how many midpoints each element reaches.
  template <int bits>
  HWY_INLINE void StoreIndices(const float* HWY_RESTRICT y, uint8_t* HWY_RESTRICT to) {
    const hn::ScalableTag<float> df;
    const hn::RebindToSigned<decltype(df)> di;
#if PF_PERMUTES_FLOATS
    const FloatTable<bits> midpoints(midpoints_);
    ForCodes(y, [&](auto v) HWY_ATTR {
      auto index = hn::Zero(di);
      for (int32_t step = 1 << (bits - 1); step > 0; step /= 2) {
        const auto border = midpoints.Get(hn::Add(index, hn::Set(di, step - 1)));
        const auto reached = hn::RebindMask(di, hn::Ge(v, border));
        index = hn::Add(index, hn::IfThenElseZero(reached, hn::Set(di, step)));
      }
      return index;
    });
#else
    ForCodes(y, [&](auto v) HWY_ATTR {
      auto index = hn::Zero(di);
      for (int i = 0; i + 1 < 1 << bits; ++i) {
        const auto reached = hn::Ge(v, hn::Set(df, midpoints_[i]));
        index = hn::Sub(index, hn::VecFromMask(di, hn::RebindMask(di, reached)));
      }
      return index;
    });
#endif
    PackCodes<bits>(codes_.data(), size_, to);
  }

  const TurboQuantFormat format_;
  const float* rotation_;
  const size_t size_;
  std::vector<float> floats_;
  std::vector<uint8_t> codes_;
  float midpoints_[16];  // infinity behind the last
};

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#endif  // toggle
