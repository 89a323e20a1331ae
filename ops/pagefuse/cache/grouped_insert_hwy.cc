#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/ops/pagefuse/cache/grouped_insert_hwy.cc"
#include <algorithm>
#include <cstring>
#include <vector>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "pagefuse/ops/cache/grouped_row-inl.h"
#include "pagefuse/ops/cache/grouped_words-inl.h"
#include "pagefuse/ops/pagefuse/cache/grouped_insert.h"
#include "pagefuse/ops/pagefuse/rope_row-inl.h"
#include "pagefuse/ops/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse::pagefuse_ops {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace vec = pagefuse::HWY_NAMESPACE;

// Encodes as many rows from the first on as have one group each and lie one behind the other: one
// at a time they would wait for their scales. Returns how many; at most kGroupsAtOnce.
template <typename From>
HWY_INLINE int64_t EncodeRowsOfOneGroup(const GroupedInsert& insert, const SlotWrite* writes,
                                        int64_t count) {
  constexpr int64_t kMostCodes = 256;  // of a row
  const GroupedRowFormat& format = insert.format;
  const bool suits = format.num_groups() == 1 && format.plain == 0 && format.scale_padding == 0 &&
                     format.CodeBytes() <= kMostCodes &&
                     insert.coded_stride == format.coded * static_cast<int64_t>(sizeof(From));
  if (!suits) return 0;
  const int64_t most = std::min<int64_t>(count, vec::kGroupsAtOnce);
  int64_t rows = 1;
  while (rows < most && writes[rows].token == writes[0].token + rows) ++rows;
  const auto* x =
      reinterpret_cast<const From*>(insert.coded + writes[0].token * insert.coded_stride);
  uint8_t codes[vec::kGroupsAtOnce * kMostCodes];
  float scales[vec::kGroupsAtOnce];
  vec::EncodeGroupsVectors(format.groups, x,
                           {static_cast<size_t>(rows), static_cast<size_t>(format.group)}, codes,
                           scales);
  for (int64_t i = 0; i < rows; ++i) {
    const RowAddress row = insert.rows.AtSlot(writes[i].slot, 0);
    std::memcpy(row.data, codes + i * format.CodeBytes(), format.CodeBytes());
    StoreGroupScale(format.groups.scale, scales[i], row.scale);
  }
  return rows;
}

template <typename From>
HWY_INLINE void EncodeGroupedRowsOf(const GroupedInsert& insert, const SlotWrite* writes,
                                    int64_t count) {
  const GroupedRowFormat& format = insert.format;
  for (int64_t i = 0; i < count;) {
    const int64_t together = EncodeRowsOfOneGroup<From>(insert, writes + i, count - i);
    i += together;
    if (together > 0) continue;
    const SlotWrite& write = writes[i++];
    const auto* x = reinterpret_cast<const From*>(insert.coded + write.token * insert.coded_stride);
    const uint8_t* plain =
        format.plain == 0 ? nullptr : insert.plain + write.token * insert.plain_stride;
    vec::EncodeGroupedRowVectors(format, x, plain, insert.rows.AtSlot(write.slot, 0));
  }
}

void EncodeGroupedRows(const GroupedInsert& insert, const SlotWrite* writes, int64_t count) {
  WithRowType(insert.source_type,
              [&]<typename T>() HWY_ATTR { EncodeGroupedRowsOf<T>(insert, writes, count); });
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

void DecodeGroupedRows(const GroupedGather& gather, const SlotRead* reads, int64_t count) {
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
    for (int64_t i = 0; i < count; ++i) decode(codec, reads[i]);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse::pagefuse_ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagefuse::pagefuse_ops {

HWY_EXPORT(EncodeGroupedRows);
HWY_EXPORT(DecodeGroupedRows);

void InsertGroupedRowsHwy(const GroupedInsert& insert, const std::vector<SlotWrite>& writes) {
  const int64_t row_bytes = 2 * insert.format.elements() + insert.format.TokenBytes();
  ParallelFor(static_cast<int64_t>(writes.size()), row_bytes, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(EncodeGroupedRows)(insert, writes.data() + begin, end - begin);
  });
}

void GatherGroupedRowsHwy(const GroupedGather& gather, const std::vector<SlotRead>& reads) {
  const int64_t row_bytes = 2 * gather.format.elements() + gather.format.TokenBytes();
  ParallelFor(static_cast<int64_t>(reads.size()), row_bytes, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(DecodeGroupedRows)(gather, reads.data() + begin, end - begin);
  });
}

}  // namespace pagefuse::pagefuse_ops
#endif  // HWY_ONCE
