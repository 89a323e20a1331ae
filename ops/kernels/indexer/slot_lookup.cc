// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/indexer/slot_lookup.h"

#include <bit>

namespace pagefuse::pagefuse_ops {

BlockDivider::BlockDivider(int64_t d) : divisor(static_cast<uint32_t>(d)) {
  shift = 31 + std::bit_width(static_cast<uint64_t>(d) - 1);
  multiplier = static_cast<uint32_t>((uint64_t{1} << shift) / divisor + 1);
}

int32_t LookUpSlots(const SlotRow& row, int64_t block_size) {
  int32_t valid = 0;
  for (int64_t i = 0; i < row.count; ++i) {
    const int64_t index = row.indices[i];
    row.slots[i] = -1;
    if (index < 0 || index >= row.limit) continue;
    ++valid;
    if (row.table == nullptr) {
      row.slots[i] = static_cast<int32_t>(index + row.start);
      continue;
    }
    row.slots[i] =
        static_cast<int32_t>(row.table[index / block_size] * block_size + index % block_size);
  }
  return valid;
}

}  // namespace pagefuse::pagefuse_ops
