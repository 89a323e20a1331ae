// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/inserts/slot_writes.h"

#include <algorithm>
#include <bit>

namespace pagefuse::pagefuse_ops {

void KeepLastOfSlot(std::vector<SlotWrite>& writes) {
  const auto not_below = [](const SlotWrite& a, const SlotWrite& b) { return a.slot >= b.slot; };
  if (std::adjacent_find(writes.begin(), writes.end(), not_below) == writes.end()) return;
  // The last write of each slot, in a table of open addressing that is at most half full.
  const size_t size = std::bit_ceil(2 * writes.size());
  const int shift = 64 - std::countr_zero(size);
  std::vector<SlotWrite> last(size, {-1, -1});
  const auto place = [&](int64_t slot) -> SlotWrite& {
    constexpr uint64_t kGolden = 0x9E3779B97F4A7C15u;  // 2^64 over the golden ratio
    size_t i = static_cast<size_t>((static_cast<uint64_t>(slot) * kGolden) >> shift);
    while (last[i].slot >= 0 && last[i].slot != slot) i = (i + 1) % size;
    return last[i];
  };
  for (const SlotWrite& write : writes) place(write.slot) = write;
  std::erase_if(writes,
                [&](const SlotWrite& write) { return place(write.slot).token != write.token; });
}

std::vector<int64_t> SlotsOfTokens(const std::vector<SlotWrite>& writes, int64_t tokens) {
  std::vector<int64_t> slots(static_cast<size_t>(tokens), -1);
  for (const SlotWrite& write : writes) slots[write.token] = write.slot;
  return slots;
}

}  // namespace pagefuse::pagefuse_ops
