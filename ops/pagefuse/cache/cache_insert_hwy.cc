#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/ops/pagefuse/cache/cache_insert_hwy.cc"
#include <cstring>
#include <vector>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "pagefuse/ops/cache/row_codec-inl.h"
#include "pagefuse/ops/pagefuse/cache/cache_insert.h"
#include "pagefuse/ops/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse::pagefuse_ops {
namespace HWY_NAMESPACE {
namespace vec = pagefuse::HWY_NAMESPACE;

// Encodes the rows [begin, end) of writes x heads, counted token by token.
void EncodeRows(const CacheSide& side, const std::vector<SlotWrite>& writes, int64_t begin,
                int64_t end) {
  const size_t n = static_cast<size_t>(side.head_size);
  std::vector<float> memory(2 * n);
  float* x = memory.data();
  float* scratch = x + n;
  for (int64_t i = begin; i < end; ++i) {
    const SlotWrite& write = writes[i / side.heads];
    const int64_t head = i % side.heads;
    const uint8_t* source = side.SourceRow(write.token, head);
    const RowAddress row = side.rows.AtSlot(write.slot, head);
    const float* values = x;
    switch (side.source_type) {
      case DataType::kFloat16:
        vec::ConvertArray(reinterpret_cast<const Float16*>(source), n, x);
        break;
      case DataType::kBfloat16:
        vec::ConvertArray(reinterpret_cast<const Bfloat16*>(source), n, x);
        break;
      case DataType::kFloat8E4M3FN:
        vec::ConvertArray(reinterpret_cast<const Float8E4M3FN*>(source), n, x);
        break;
      default:
        values = reinterpret_cast<const float*>(source);
    }
    vec::WithRowCodec(side.format, side.Params(head),
                      [&](const auto& codec) HWY_ATTR { codec.Store(values, n, row, scratch); });
  }
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

void InsertRowsHwy(const CacheSide& side, const std::vector<SlotWrite>& writes) {
  const int64_t tokens = static_cast<int64_t>(writes.size());
  const int64_t token_bytes = side.heads * side.SourceRowBytes();
  if (side.CopiesBytes()) {
    if (token_bytes == 0) return;
    ParallelFor(tokens, token_bytes,
                [&](int64_t begin, int64_t end) { CopyRows(side, writes, begin, end); });
    return;
  }
  ParallelFor(tokens * side.heads, side.SourceRowBytes(), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(EncodeRows)(side, writes, begin, end);
  });
}

}  // namespace pagefuse::pagefuse_ops
#endif  // HWY_ONCE
