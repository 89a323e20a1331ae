// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/numeric/convert.h"
#include "pagefuse/ops/kernels/turboquant/turboquant.h"

namespace pagefuse {

void InsertTurboQuant(const TurboQuantInsertCall& call) {
  const int64_t size = call.format.head_size;
  const int64_t row_bytes = size * BitWidth(call.source_type) / 8;
  std::vector<float> row(size);
  for (const pagefuse_ops::SlotWrite& write : call.writes) {
    for (int64_t head = 0; head < call.heads; ++head) {
      const int64_t offset = (write.token * call.heads + head) * row_bytes;
      uint8_t* slot = call.slots.AtSlot(write.slot, head).data;
      // The source is of a float type: never an error.
      DecodeToFloat(call.source_type, call.key + offset, size, row.data()).IgnoreError();
      EncodeTurboQuantKey(call.format, call.tables, row.data(), slot);
      DecodeToFloat(call.source_type, call.value + offset, size, row.data()).IgnoreError();
      EncodeTurboQuantValue(call.format, row.data(), slot);
    }
  }
}

}  // namespace pagefuse
