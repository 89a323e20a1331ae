#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/ops/pagefuse/turboquant/turboquant_insert_hwy.cc"
#include <vector>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "pagefuse/ops/cache/turboquant_encode-inl.h"
#include "pagefuse/ops/pagefuse/turboquant/turboquant_hwy.h"
#include "pagefuse/ops/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {

void Rotate(const float* rotation, const float* x, int64_t head_size, float* y) {
  RotateTurboRow(rotation, x, static_cast<size_t>(head_size), y);
}

// A source row as floats, in `memory` or where it is.
HWY_INLINE const float* FloatRow(DataType type, const uint8_t* row, size_t n, float* memory) {
  switch (type) {
    case DataType::kFloat16:
      ConvertArray(reinterpret_cast<const Float16*>(row), n, memory);
      return memory;
    case DataType::kBfloat16:
      ConvertArray(reinterpret_cast<const Bfloat16*>(row), n, memory);
      return memory;
    default:
      return reinterpret_cast<const float*>(row);
  }
}

// Encodes the rows [begin, end) of writes x heads, counted token by token.
void EncodeSlots(const TurboQuantInsertCall& call,
                 const std::vector<pagefuse_ops::SlotWrite>& writes, int64_t begin, int64_t end) {
  TurboQuantWriter writer(call.format, call.tables);
  const int64_t row_bytes = call.format.head_size * BitWidth(call.source_type) / 8;
  const auto n = static_cast<size_t>(call.format.head_size);
  std::vector<float> memory(n);
  for (int64_t i = begin; i < end; ++i) {
    const pagefuse_ops::SlotWrite& write = writes[i / call.heads];
    const int64_t head = i % call.heads;
    const int64_t offset = (write.token * call.heads + head) * row_bytes;
    uint8_t* slot = call.slots.AtSlot(write.slot, head).data;
    writer.StoreKey(FloatRow(call.source_type, call.key + offset, n, memory.data()), slot);
    writer.StoreValue(FloatRow(call.source_type, call.value + offset, n, memory.data()), slot);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagefuse {

HWY_EXPORT(Rotate);
HWY_EXPORT(EncodeSlots);

void RotateTurboQuantHwy(const float* rotation, const float* x, int64_t head_size, float* y) {
  HWY_DYNAMIC_DISPATCH(Rotate)(rotation, x, head_size, y);
}

void InsertTurboQuantHwy(const TurboQuantInsertCall& call,
                         const std::vector<pagefuse_ops::SlotWrite>& writes) {
  // Encoding a row costs about as much as moving ten times its bytes; a product with a matrix as
  // much as reading that.
  const int64_t size = call.format.head_size;
  const int64_t item_bytes = 40 * size + (call.tables.rotation != nullptr ? 4 * size * size : 0);
  ParallelFor(static_cast<int64_t>(writes.size()) * call.heads, item_bytes,
              [&](int64_t begin, int64_t end) {
                HWY_DYNAMIC_DISPATCH(EncodeSlots)(call, writes, begin, end);
              });
}

}  // namespace pagefuse
#endif  // HWY_ONCE
