// SPDX-License-Identifier: Apache-2.0
#define HWY_WANT_AVX3_DL  // byte_tables-inl.h
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/ops/kernels/turboquant/turboquant_insert_hwy.cc"

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "pagefuse/ops/kernels/formats/turboquant_encode-inl.h"
#include "pagefuse/ops/kernels/rows/rope_row-inl.h"
#include "pagefuse/ops/kernels/turboquant/turboquant.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {

// Encodes the rows [begin, end) of writes x heads, counted token by token.
template <typename From>
HWY_INLINE void EncodeSlotsOf(const TurboQuantInsertCall& call, int64_t begin, int64_t end) {
  TurboQuantWriter writer(call.format, call.tables);
  TurboQuantRow<From> keys[TurboQuantWriter::kRowsAtOnce];
  TurboQuantRow<From> values[TurboQuantWriter::kRowsAtOnce];
  for (int64_t i = begin; i < end;) {
    size_t count = 0;
    for (; count < TurboQuantWriter::kRowsAtOnce && i < end; ++count, ++i) {
      const pagefuse_ops::SlotWrite& write = call.writes[i / call.heads];
      const int64_t head = i % call.heads;
      const int64_t offset = (write.token * call.heads + head) * call.format.head_size;
      uint8_t* slot = call.slots.AtSlot(write.slot, head).data;
      keys[count] = {reinterpret_cast<const From*>(call.key) + offset, slot};
      values[count] = {reinterpret_cast<const From*>(call.value) + offset, slot};
    }
    writer.StoreKeys<From>({keys, count});
    writer.StoreValues<From>({values, count});
  }
}

void EncodeSlots(const TurboQuantInsertCall& call, int64_t begin, int64_t end) {
  pagefuse_ops::HWY_NAMESPACE::WithRowType(
      call.source_type, [&]<typename T>() HWY_ATTR { EncodeSlotsOf<T>(call, begin, end); });
}

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagefuse {

HWY_EXPORT(EncodeSlots);

void InsertTurboQuantHwy(const TurboQuantInsertCall& call) {
  // Encoding a row costs about as much as moving ten times its bytes; a product with a matrix as
  // much as reading that.
  const int64_t size = call.format.head_size;
  const int64_t item_bytes = 40 * size + (call.tables.rotation != nullptr ? 4 * size * size : 0);
  pagefuse_ops::ForEachRow(call, static_cast<int64_t>(call.writes.size()) * call.heads, item_bytes,
                           HWY_DYNAMIC_DISPATCH(EncodeSlots));
}

}  // namespace pagefuse
#endif  // HWY_ONCE
