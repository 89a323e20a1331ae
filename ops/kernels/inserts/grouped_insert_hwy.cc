// SPDX-License-Identifier: Apache-2.0
#define HWY_WANT_AVX3_DL  // byte_tables-inl.h
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/ops/kernels/inserts/grouped_insert_hwy.cc"
#include <algorithm>
#include <cstring>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "pagefuse/ops/kernels/formats/grouped_row-inl.h"
#include "pagefuse/ops/kernels/formats/grouped_words-inl.h"
#include "pagefuse/ops/kernels/inserts/grouped_insert.h"
#include "pagefuse/ops/kernels/numeric/hadamard-inl.h"
#include "pagefuse/ops/kernels/rows/rope_row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse::pagefuse_ops {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace vec = pagefuse::HWY_NAMESPACE;

// Coded elements as they come.
template <typename From>
class GivenRows {
 public:
  explicit GivenRows(const GroupedInsert& insert) : insert_(insert) {}
  HWY_INLINE void Prepare(const SlotWrite*, size_t) {}
  HWY_INLINE const From* At(const SlotWrite* writes, size_t i) const {
    return reinterpret_cast<const From*>(insert_.Coded(writes[i].token));
  }

 private:
  const GroupedInsert& insert_;
};

// The same, rotated by HadamardRotate and rounded.
class RotatedRows {
 public:
  explicit RotatedRows(const GroupedInsert& insert)
      : insert_(insert),
        size_(static_cast<size_t>(insert.format.coded)),
        row_(size_),
        rounded_(size_ * vec::kGroupsAtOnce) {}

  HWY_INLINE void Prepare(const SlotWrite* writes, size_t rows) {
    for (size_t i = 0; i < rows; ++i) {
      LoadRow(insert_.source_type, insert_.Coded(writes[i].token), size_, row_.data());
      vec::HadamardRotateVectors(row_.data(), size_);
      vec::ConvertArray(row_.data(), size_, rounded_.data() + i * size_);
    }
  }
  HWY_INLINE const Bfloat16* At(const SlotWrite*, size_t i) const {
    return rounded_.data() + i * size_;
  }

 private:
  const GroupedInsert& insert_;
  size_t size_;
  std::vector<float> row_;
  std::vector<Bfloat16> rounded_;
};

template <class Source>
HWY_INLINE void EncodeGroupedRowsOf(const GroupedInsert& insert, int64_t begin, int64_t end) {
  const GroupedRowFormat& format = insert.format;
  Source source(insert);
  for (int64_t first = begin; first < end;) {
    const SlotWrite* writes = insert.writes.data() + first;
    const auto source_at = [&](size_t i) HWY_ATTR { return source.At(writes, i); };
    const auto address_at = [&](size_t i) { return insert.rows.AtSlot(writes[i].slot, 0); };
    const size_t rows = std::min(static_cast<size_t>(end - first), vec::kGroupsAtOnce);
    source.Prepare(writes, rows);
    if (!vec::EncodeRowsOfOneGroup(format, rows, source_at, address_at)) {
      for (size_t i = 0; i < rows; ++i) {
        vec::EncodeGroupedRowVectors(format, source_at(i), insert.Plain(writes[i].token),
                                     address_at(i));
      }
    }
    first += static_cast<int64_t>(rows);
  }
}

void EncodeGroupedRows(const GroupedInsert& insert, int64_t begin, int64_t end) {
  if (insert.hadamard) return EncodeGroupedRowsOf<RotatedRows>(insert, begin, end);
  WithRowType(insert.source_type, [&]<typename T>() HWY_ATTR {
    EncodeGroupedRowsOf<GivenRows<T>>(insert, begin, end);
  });
}

// Codes of one group as bfloat16, each code * scale rounded to float, then once more.
HWY_INLINE void DecodeGroupToBfloat16(const uint8_t* HWY_RESTRICT codes, float scale, size_t n,
                                      uint8_t* HWY_RESTRICT out) {
  const hn::ScalableTag<float> df;
  const size_t lanes = hn::Lanes(df);
  const auto factor = hn::Set(df, scale);
  const auto* from = reinterpret_cast<const Float8E4M3FN*>(codes);
  auto* to = reinterpret_cast<Bfloat16*>(out);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    vec::StoreFromFloat(hn::Mul(vec::LoadToFloat(df, from + i), factor), df, to + i);
  }
  if (i == n) return;
  const auto rest = hn::Mul(vec::LoadToFloatN(df, from + i, n - i), factor);
  vec::StoreFromFloatN(rest, df, to + i, n - i);
}

void DecodeGroupedRows(const GroupedGather& gather, int64_t begin, int64_t end) {
  const GroupedRowFormat& format = gather.format;
  const int64_t scale_bytes = format.groups.ScaleBytes();
  const auto decode = [&](const auto& codec, const SlotRead& read) HWY_ATTR {
    const RowAddress row = gather.rows.AtSlot(read.slot, 0);
    uint8_t* out = gather.workspace + read.row * format.elements() * 2;
    const size_t decoded =
        vec::DecodeCodedWords(codec, codec.Open(row), reinterpret_cast<uint16_t*>(out));
    for (int64_t g = static_cast<int64_t>(decoded) / format.group; g < format.num_groups(); ++g) {
      const float scale = LoadGroupScale(format.groups.scale, row.scale + g * scale_bytes);
      DecodeGroupToBfloat16(row.data + g * format.group, scale, static_cast<size_t>(format.group),
                            out + 2 * g * format.group);
    }
    if (format.plain == 0) return;
    std::memcpy(out + 2 * format.coded, row.data + format.PlainOffset(), 2 * format.plain);
  };
  vec::WithGroupedCodec(format, [&](const auto& codec) HWY_ATTR {
    for (int64_t i = begin; i < end; ++i) decode(codec, gather.reads[i]);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse::pagefuse_ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagefuse::pagefuse_ops {

HWY_EXPORT(EncodeGroupedRows);
HWY_EXPORT(DecodeGroupedRows);

void InsertGroupedRowsHwy(const GroupedInsert& insert) {
  const int64_t row_bytes = 2 * insert.format.elements() + insert.format.TokenBytes();
  ForEachInsertedRow(insert, row_bytes, HWY_DYNAMIC_DISPATCH(EncodeGroupedRows));
}

void GatherGroupedRowsHwy(const GroupedGather& gather) {
  const int64_t row_bytes = 2 * gather.format.elements() + gather.format.TokenBytes();
  ForEachRow(gather, static_cast<int64_t>(gather.reads.size()), row_bytes,
             HWY_DYNAMIC_DISPATCH(DecodeGroupedRows));
}

}  // namespace pagefuse::pagefuse_ops
#endif  // HWY_ONCE
