// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/ops/kernels/inserts/compressor_state_insert_hwy.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "pagefuse/ops/kernels/inserts/compressor_state_insert.h"
#include "pagefuse/ops/kernels/numeric/convert-inl.h"
#include "pagefuse/ops/kernels/rows/rope_row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse::pagefuse_ops {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace vec = pagefuse::HWY_NAMESPACE;

// to = x + b, element by element.
template <typename From>
HWY_INLINE void Sums(const From* HWY_RESTRICT x, const float* HWY_RESTRICT b, size_t n,
                     float* HWY_RESTRICT to) {
  const hn::ScalableTag<float> df;
  const size_t lanes = hn::Lanes(df);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(hn::Add(vec::LoadToFloat(df, x + i), hn::LoadU(df, b + i)), df, to + i);
  }
  for (; i < n; ++i) to[i] = static_cast<float>(x[i]) + b[i];
}

template <typename From>
HWY_INLINE void WriteStatesFrom(const StateInsert& insert, int64_t begin, int64_t end) {
  const auto n = static_cast<size_t>(insert.width);
  const auto* kv = reinterpret_cast<const From*>(insert.kv);
  const auto* score = reinterpret_cast<const From*>(insert.score);
  for (int64_t i = begin; i < end; ++i) {
    const SlotWrite& write = insert.writes[i];
    const int64_t at = write.token * insert.width;
    auto* row = reinterpret_cast<float*>(insert.rows.AtSlot(write.slot, 0).data);
    vec::ConvertArray(kv + at, n, row);
    Sums(score + at, insert.Ape(write.token), n, row + insert.half);
  }
}

void WriteStates(const StateInsert& insert, int64_t begin, int64_t end) {
  WithRowType(insert.type, [&]<typename T>() HWY_ATTR { WriteStatesFrom<T>(insert, begin, end); });
}

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse::pagefuse_ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagefuse::pagefuse_ops {

HWY_EXPORT(WriteStates);

void InsertStateHwy(const StateInsert& insert) {
  const int64_t row_bytes = 2 * insert.width * (BitWidth(insert.type) / 8 + 4);
  ForEachInsertedRow(insert, row_bytes, HWY_DYNAMIC_DISPATCH(WriteStates));
}

}  // namespace pagefuse::pagefuse_ops
#endif  // HWY_ONCE
