// SPDX-License-Identifier: Apache-2.0
#define HWY_WANT_AVX3_DL  // byte_tables-inl.h
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/ops/kernels/inserts/cache_insert_hwy.cc"
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "pagefuse/base/parallel.h"
#include "pagefuse/ops/kernels/formats/for_format-inl.h"
#include "pagefuse/ops/kernels/inserts/cache_insert.h"
#include "pagefuse/ops/kernels/rows/rope_row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse::pagefuse_ops {
namespace HWY_NAMESPACE {
namespace vec = pagefuse::HWY_NAMESPACE;

// Rows of writes x heads, counted token by token.
struct Rows {
  const CacheSide& side;
  const std::vector<SlotWrite>& writes;
  int64_t begin, end;
  int64_t only_head;  // kAllHeads, or those of this head alone
};
constexpr int64_t kAllHeads = -1;

// Encodes them. Heads that lie one behind the other are one row where a row has no scale.
template <typename From, class Codec>
HWY_INLINE void EncodeRowsOf(const Codec& codec, const Rows& rows, float* scratch) {
  const CacheSide& side = rows.side;
  const CacheRows::Strides& stride = side.rows.data_strides;
  const int64_t n = side.head_size;
  bool joined = false;
  if constexpr (!Codec::kRowScale) {
    joined = stride.head == n * static_cast<int64_t>(sizeof(typename Codec::Element));
  }
  int64_t next = 0;
  for (int64_t i = rows.begin; i < rows.end; i = next) {
    const SlotWrite& write = rows.writes[i / side.heads];
    int64_t head = i % side.heads;
    int64_t last = std::min(side.heads, head + rows.end - i);
    next = i + last - head;
    if (rows.only_head != kAllHeads) {
      if (rows.only_head < head || rows.only_head >= last) continue;
      head = rows.only_head;
      last = head + 1;
    }
    const auto* x = reinterpret_cast<const From*>(side.SourceRow(write.token, head));
    const RowAddress row = side.rows.AtSlot(write.slot, head);
    if (joined) {
      codec.Store(x, static_cast<size_t>((last - head) * n), row, scratch);
      continue;
    }
    const vec::RowsToStore<From> those = {x,      static_cast<size_t>(n), last - head, row,
                                          stride, side.rows.scale_strides};
    vec::StoreRows(codec, those, scratch);
  }
}

template <typename From, class Codec>
HWY_INLINE void EncodeRowsWith(const Codec& codec, const Rows& rows, float* scratch) {
  if constexpr (std::is_same_v<From, Bfloat16> && requires { codec.ByTable(0, [](auto) {}); }) {
    const int64_t heads = rows.only_head == kAllHeads ? 1 : rows.side.heads;
    const int64_t elements = (rows.end - rows.begin) / heads * rows.side.head_size;
    if (codec.ByTable(elements, [&](const auto& table)
                                    HWY_ATTR { EncodeRowsOf<From>(table, rows, scratch); })) {
      return;
    }
  }
  EncodeRowsOf<From>(codec, rows, scratch);
}

template <typename From>
HWY_INLINE void EncodeRowsFrom(const Rows& rows) {
  const CacheSide& side = rows.side;
  std::vector<float> scratch;  // of the formats that transform rows
  if (side.format.needs_signs()) {
    scratch.resize(static_cast<size_t>(vec::kRowsAtOnce * side.head_size));
  }
  const auto encode = [&](int64_t head, int64_t only_head) HWY_ATTR {
    const Rows those = {side, rows.writes, rows.begin, rows.end, only_head};
    vec::ForFormat(side.format, [&](const auto& views) HWY_ATTR {
      EncodeRowsWith<From>(views.Writer(side.format, side.Params(head)), those, scratch.data());
    });
  };
  if (side.tensor_scale_count == 1) return encode(0, kAllHeads);
  for (int64_t head = 0; head < side.heads; ++head) encode(head, head);
}

void EncodeRows(const CacheSide& side, const std::vector<SlotWrite>& writes, int64_t begin,
                int64_t end) {
  const Rows rows = {side, writes, begin, end, kAllHeads};
  if (side.source_type == DataType::kFloat8E4M3FN) return EncodeRowsFrom<Float8E4M3FN>(rows);
  WithRowType(side.source_type, [&]<typename T>() HWY_ATTR { EncodeRowsFrom<T>(rows); });
}

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse::pagefuse_ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagefuse::pagefuse_ops {

HWY_EXPORT(EncodeRows);

namespace {

// Rows that lie one behind the other in the cache too are copied in one go.
void CopyRows(const CacheSide& side, const std::vector<SlotWrite>& writes, int64_t begin,
              int64_t end) {
  const int64_t row_bytes = side.SourceRowBytes();
  const bool dense = side.rows.data_strides.head == row_bytes;
  for (int64_t i = begin; i < end; ++i) {
    const SlotWrite& write = writes[i];
    if (dense) {
      std::memcpy(side.rows.AtSlot(write.slot, 0).data, side.SourceRow(write.token, 0),
                  side.heads * row_bytes);
      continue;
    }
    for (int64_t head = 0; head < side.heads; ++head) {
      std::memcpy(side.rows.AtSlot(write.slot, head).data, side.SourceRow(write.token, head),
                  row_bytes);
    }
  }
}

}  // namespace

void InsertRowsHwy(SideList sides, const std::vector<SlotWrite>& writes) {
  int64_t token_bytes = 0;
  for (const CacheSide* side : sides) token_bytes += side->heads * side->SourceRowBytes();
  if (token_bytes == 0) return;
  ParallelFor(static_cast<int64_t>(writes.size()), token_bytes, [&](int64_t begin, int64_t end) {
    for (const CacheSide* side : sides) {
      if (side->CopiesBytes()) {
        CopyRows(*side, writes, begin, end);
      } else {
        HWY_DYNAMIC_DISPATCH(EncodeRows)(*side, writes, begin * side->heads, end * side->heads);
      }
    }
  });
}

}  // namespace pagefuse::pagefuse_ops
#endif  // HWY_ONCE
