// SPDX-License-Identifier: Apache-2.0
// "int4_per_token_head" in vectors. Include inside a file that hwy/foreach_target.h recompiles.
#if defined(PAGEFUSE_KERNELS_FORMATS_INT4_PER_TOKEN_HEAD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAGEFUSE_KERNELS_FORMATS_INT4_PER_TOKEN_HEAD_INL_H_
#undef PAGEFUSE_KERNELS_FORMATS_INT4_PER_TOKEN_HEAD_INL_H_
#else
#define PAGEFUSE_KERNELS_FORMATS_INT4_PER_TOKEN_HEAD_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstring>

#include "hwy/highway.h"

#include "pagefuse/ops/kernels/formats/pack_codes-inl.h"
#include "pagefuse/ops/kernels/formats/row_codec-inl.h"
#include "pagefuse/ops/kernels/formats/row_codec.h"
#include "pagefuse/ops/kernels/formats/words-inl.h"
#include "pagefuse/ops/kernels/numeric/extremes-inl.h"
#include "pagefuse/ops/kernels/numeric/hadamard-inl.h"
#include "pagefuse/ops/kernels/numeric/packing.h"
#include "pagefuse/ops/kernels/numeric/round_through-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Two codes a byte; the row is in the space of the Hadamard transform.
struct Int4HeadCodec {
  using Element = uint8_t;
  static constexpr bool kRowScale = true;
  static constexpr float kUnit = 1.0f;
  static constexpr bool kEvenOdd = HWY_TARGET != HWY_SCALAR;
  static constexpr bool kUnitLength = false;
  static constexpr bool kRowOffset = false;
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

  // A byte widened to a lane holds two codes.
  template <class DF, class V>
  HWY_INLINE void LoadTwo(DF df, const Row& row, size_t d, V& a, V& b) const {
    if constexpr (!kEvenOdd) {
      a = Load(df, row, d);
      b = Load(df, row, d + hn::Lanes(df));
    } else {
      const hn::RebindToSigned<DF> di;
      const hn::Rebind<uint8_t, DF> du8;
      const auto bytes = hn::PromoteTo(di, hn::LoadU(du8, row.data + d / 2));
      const auto low = hn::And(bytes, hn::Set(di, 15));
      const auto high = hn::ShiftRight<4>(bytes);
      if constexpr (hn::MaxLanes(df) == 16) {
        // A vector is a table of what each code means in a row.
        const auto table = hn::Sub(hn::Iota(df, 0.0f), hn::Set(df, row.zero_point));
        a = hn::TableLookupLanes(table, hn::IndicesFromVec(df, low));
        b = hn::TableLookupLanes(table, hn::IndicesFromVec(df, high));
      } else {
        const auto zero_point = hn::Set(df, row.zero_point);
        a = hn::Sub(hn::ConvertTo(df, low), zero_point);
        b = hn::Sub(hn::ConvertTo(df, high), zero_point);
      }
    }
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

#if PF_MULTIPLIES_WORDS
  using Pairs = CodePairs<4>;
  using Word = int16_t;
  static constexpr float largest_word() { return 15; }
  static constexpr float word_unit() { return 1; }
  static constexpr size_t WordElement(size_t i) { return Pairs::WordElement(i); }
  static constexpr size_t PairElement(size_t i) { return Pairs::PairElement(i); }

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
#endif
};

struct Int4PerTokenHead : RowViews<Int4PerTokenHead, Int4HeadCodec> {
  static HWY_INLINE Int4HeadCodec Writer(const CacheFormat&, const RowParams& params) {
    return {.signs = params.rht_signs, .source_type = params.source_type};
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#endif  // toggle
