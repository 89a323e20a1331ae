#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/ops/pagefuse/cache/compressor_state_insert_hwy.cc"
#include <vector>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "pagefuse/ops/pagefuse/cache/compressor_state_insert.h"
#include "pagefuse/ops/pagefuse/rope_row-inl.h"
#include "pagefuse/ops/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse::pagefuse_ops {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// a[0, n) += b[0, n).
HWY_INLINE void AddTo(float* HWY_RESTRICT a, const float* HWY_RESTRICT b, size_t n) {
  const hn::ScalableTag<float> df;
  const size_t lanes = hn::Lanes(df);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(hn::Add(hn::LoadU(df, a + i), hn::LoadU(df, b + i)), df, a + i);
  }
  for (; i < n; ++i) a[i] += b[i];
}

void WriteStates(const StateInsert& insert, const StateWrite* writes, int64_t count) {
  const size_t n = static_cast<size_t>(insert.width);
  const int64_t source_bytes = insert.width * BitWidth(insert.type) / 8;
  for (int64_t i = 0; i < count; ++i) {
    const StateWrite& write = writes[i];
    const int64_t at = write.token * source_bytes;
    auto* row = reinterpret_cast<float*>(insert.rows.AtSlot(write.slot, 0).data);
    LoadRow(insert.type, insert.kv + at, n, row);
    LoadRow(insert.type, insert.score + at, n, row + insert.half);
    AddTo(row + insert.half, insert.ape + write.phase * insert.width, n);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse::pagefuse_ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagefuse::pagefuse_ops {

HWY_EXPORT(WriteStates);

void InsertStateHwy(const StateInsert& insert) {
  const int64_t row_bytes = 2 * insert.width * (BitWidth(insert.type) / 8 + 4);
  ParallelFor(
      static_cast<int64_t>(insert.writes.size()), row_bytes, [&](int64_t begin, int64_t end) {
        HWY_DYNAMIC_DISPATCH(WriteStates)(insert, insert.writes.data() + begin, end - begin);
      });
}

}  // namespace pagefuse::pagefuse_ops
#endif  // HWY_ONCE
