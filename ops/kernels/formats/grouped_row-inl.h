// SPDX-License-Identifier: Apache-2.0
// EncodeGroupedRow in vectors, and codecs that decode such rows as row_codec-inl.h describes them
// (Open, Load, LoadN; row.scale is 1). Include inside a file that hwy/foreach_target.h recompiles.
//
//   Fp8Ue8m0Codec codec(Fp8Ue8m0Row());           also Fp8DsMlaCodec, IndexerFp8Codec
//   const auto row = codec.Open(rows.AtSlot(slot, 0));
//   for (size_t d = 0; d < 512; d += lanes) v = codec.Load(df, row, d);
//
// With a codec of one group size, elements [d, d + Lanes(df)) must lie in one group, or all among
// the plain ones: so they do where d is a multiple of the lanes and the group a multiple of 16.
// LoadN takes up to Lanes(df) elements under the same rule. WithGroupedCodec gives a codec that
// takes any. A cache of bfloat16 rows is PlainCodec<Bfloat16>.
#if defined(PAGEFUSE_KERNELS_FORMATS_GROUPED_ROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAGEFUSE_KERNELS_FORMATS_GROUPED_ROW_INL_H_
#undef PAGEFUSE_KERNELS_FORMATS_GROUPED_ROW_INL_H_
#else
#define PAGEFUSE_KERNELS_FORMATS_GROUPED_ROW_INL_H_
#endif

#include <algorithm>
#include <cstring>

#include "hwy/highway.h"

#include "pagefuse/ops/kernels/formats/group_codec-inl.h"
#include "pagefuse/ops/kernels/formats/group_encode-inl.h"
#include "pagefuse/ops/kernels/formats/grouped_row.h"
#include "pagefuse/ops/kernels/formats/row_codec-inl.h"
#include "pagefuse/ops/kernels/numeric/round_through-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// As EncodeGroupedRow, of numbers of any type that LoadToFloat takes.
template <typename From>
HWY_INLINE void EncodeGroupedRowVectors(const GroupedRowFormat& format, const From* HWY_RESTRICT x,
                                        const void* tail, RowAddress row) {
  const size_t group = static_cast<size_t>(format.group);
  const size_t num_groups = static_cast<size_t>(format.num_groups());
  const size_t code_bytes = static_cast<size_t>(format.groups.CodeBytes(format.group));
  const size_t scale_bytes = static_cast<size_t>(format.groups.ScaleBytes());
  float scales[kGroupsAtOnce];
  for (size_t first = 0; first < num_groups; first += kGroupsAtOnce) {
    const GroupRun run = {std::min(kGroupsAtOnce, num_groups - first), group};
    EncodeGroupsVectors(format.groups, x + first * group, run, row.data + first * code_bytes,
                        scales);
    for (size_t g = 0; g < run.count; ++g) {
      StoreGroupScale(format.groups.scale, scales[g], row.scale + (first + g) * scale_bytes);
    }
  }
  std::memset(row.scale + format.ScaleBytes() - format.scale_padding, 0, format.scale_padding);
  if (format.plain > 0) std::memcpy(row.data + format.PlainOffset(), tail, 2 * format.plain);
}

// As DecodeGroupedRow, of rows of e2m1 groups without plain elements: x[0, coded).
HWY_INLINE void DecodeE2M1Row(const GroupedRowFormat& format, RowAddress row,
                              float* HWY_RESTRICT x) {
  const int64_t code_bytes = format.groups.CodeBytes(format.group);
  for (int64_t g = 0; g < format.num_groups(); ++g) {
    const float scale =
        LoadGroupScale(format.groups.scale, row.scale + g * format.groups.ScaleBytes());
    DecodeE2M1Group(row.data + g * code_bytes, scale, static_cast<size_t>(format.group),
                    x + g * format.group);
  }
}

// The same for `count` rows of one group each, at most kGroupsAtOnce, row r at source_at(r) and
// going to address_at(r): one at a time they would wait for their scales. False, with nothing
// written, if the rows are not so or their scales not usual.
template <class SourceAt, class AddressAt>
HWY_INLINE bool EncodeRowsOfOneGroup(const GroupedRowFormat& format, size_t count,
                                     const SourceAt& source_at, const AddressAt& address_at) {
  if (format.num_groups() != 1 || format.plain != 0 || format.scale_padding != 0) return false;
  const auto size = static_cast<size_t>(format.group);
  float scales[kGroupsAtOnce];
  if (!FindUsualScales(format.groups, {count, size}, source_at, scales)) return false;
  for (size_t r = 0; r < count; ++r) {
    const RowAddress row = address_at(r);
    EncodeUsualGroups(format.groups, source_at(r), {1, size}, scales + r, row.data);
    StoreGroupScale(format.groups.scale, scales[r], row.scale);
  }
  return true;
}

// Rows of e4m3fn groups. `group_size` is the format's group where it is known when compiled, 0
// where it is not. With `round` a coded element is bfloat16(code * scale), without it the float
// product: the same number for power-of-two scales that leave it normal.
template <GroupScale kind, size_t group_size, bool round>
class GroupedE4M3Codec {
 public:
  using Element = Float8E4M3FN;
  static constexpr bool kRowScale = false;
  static constexpr bool kRounds = round;
  static constexpr GroupScale kScale = kind;
  struct Row {
    const uint8_t* data;
    const uint8_t* scales;
    float scale;  // 1: Load multiplies
  };

  explicit GroupedE4M3Codec(const GroupedRowFormat& format)
      : coded_(static_cast<size_t>(format.coded)),
        group_(static_cast<size_t>(format.group)),
        plain_offset_(static_cast<size_t>(format.PlainOffset())) {}

  size_t coded() const { return coded_; }
  size_t group() const { return group_size != 0 ? group_size : group_; }
  HWY_INLINE Row Open(RowAddress row) const { return {row.data, row.scale, 1.0f}; }

  // The scale of element d, one of the coded.
  HWY_INLINE float ScaleAt(const Row& row, size_t d) const {
    const size_t g = d / group();
    if constexpr (kind == GroupScale::kUe8m0) {
      return DecodeUe8m0(row.scales[g]);
    } else {
      float scale;
      std::memcpy(&scale, row.scales + g * sizeof(scale), sizeof(scale));
      return scale;
    }
  }
  template <class DF>
  HWY_INLINE hn::Vec<DF> Load(DF df, const Row& row, size_t d) const {
    if (d >= coded_) return LoadToFloat(df, Plain(row, d));
    if (!InOneGroup(d, hn::Lanes(df))) return OneByOne(df, row, d, hn::Lanes(df));
    const auto codes = LoadToFloat(df, reinterpret_cast<const Float8E4M3FN*>(row.data) + d);
    return Scaled(df, codes, ScaleAt(row, d));
  }
  template <class DF>
  HWY_INLINE hn::Vec<DF> LoadN(DF df, const Row& row, size_t d, size_t count) const {
    if (d >= coded_) return LoadToFloatN(df, Plain(row, d), count);
    if (!InOneGroup(d, count)) return OneByOne(df, row, d, count);
    const auto codes = LoadToFloatN(df, reinterpret_cast<const Float8E4M3FN*>(row.data) + d, count);
    return hn::IfThenElseZero(hn::FirstN(df, count), Scaled(df, codes, ScaleAt(row, d)));
  }
  // The first `count` elements behind the coded ones.
  HWY_INLINE void CopyPlain(const Row& row, size_t count, uint16_t* HWY_RESTRICT to) const {
    std::memcpy(to, row.data + plain_offset_, 2 * count);
  }

 private:
  // Whether coded element d and those behind it are under one scale.
  HWY_INLINE bool InOneGroup(size_t d, size_t count) const {
    if constexpr (group_size != 0) return true;
    return d + count <= coded_ && d / group_ == (d + count - 1) / group_;
  }
  // Elements of groups that are smaller than a vector, or end within it.
  template <class DF>
  HWY_NOINLINE hn::Vec<DF> OneByOne(DF df, const Row& row, size_t d, size_t count) const {
    HWY_ALIGN float x[hn::MaxLanes(DF())] = {};
    for (size_t i = 0; i < count; ++i) {
      if (d + i < coded_) {
        x[i] = DecodeFloat<E4M3FNFormat>(row.data[d + i]) * ScaleAt(row, d + i);
      } else {
        uint16_t bits;
        std::memcpy(&bits, Plain(row, d + i), sizeof(bits));
        x[i] = DecodeFloat<Bfloat16Format>(bits);
      }
    }
    const auto values = hn::Load(df, x);
    if constexpr (round) return RoundThrough<Bfloat16>(df, values);
    return values;
  }
  // The address of plain element d; may be odd, so it is never dereferenced as it is.
  HWY_INLINE const Bfloat16* Plain(const Row& row, size_t d) const {
    return reinterpret_cast<const Bfloat16*>(row.data + plain_offset_ + 2 * (d - coded_));
  }
  template <class DF, class V = hn::Vec<DF>>
  static HWY_INLINE hn::Vec<DF> Scaled(DF df, V codes, float scale) {
    const auto product = hn::Mul(codes, hn::Set(df, scale));
    if constexpr (round) return RoundThrough<Bfloat16>(df, product);
    return product;
  }

  size_t coded_;
  size_t group_;
  size_t plain_offset_;
};

// Layouts of one published group size each; GroupedE4M3Codec<kind, 0, round> takes any.
using Fp8Ue8m0Codec = GroupedE4M3Codec<GroupScale::kUe8m0, 64, false>;
using Fp8DsMlaCodec = GroupedE4M3Codec<GroupScale::kFloat, 128, true>;
using IndexerFp8Codec = GroupedE4M3Codec<GroupScale::kFloat, 128, false>;

// Calls f(codec) with a codec for e4m3fn rows of this format that gives the elements as the
// attention reads them: rounded to bfloat16 where the scale is no power of two.
template <class F>
HWY_INLINE void WithGroupedCodec(const GroupedRowFormat& format, const F& f) {
  if (format.groups.scale == GroupScale::kUe8m0) {
    if (format.group == 64) return f(Fp8Ue8m0Codec(format));
    return f(GroupedE4M3Codec<GroupScale::kUe8m0, 0, false>(format));
  }
  if (format.group == 128) return f(Fp8DsMlaCodec(format));
  return f(GroupedE4M3Codec<GroupScale::kFloat, 0, true>(format));
}

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#endif  // toggle
