// SPDX-License-Identifier: Apache-2.0
// Token indices of a request to slots of the paged cache through its block table.
#pragma once

#include <cstdint>

namespace pagefuse::pagefuse_ops {

// One row of indices. An index v with 0 <= v < limit is valid; it becomes table[v / block_size] *
// block_size + v % block_size, or with a null table v + start. Others become -1.
struct SlotRow {
  const int32_t* indices = nullptr;  // [count]
  int64_t count = 0;
  const int32_t* table = nullptr;  // entries of valid indices are not negative
  int64_t limit = 0;               // at most the table's columns * block_size
  int32_t start = 0;
  int32_t* slots = nullptr;  // [count], may not overlap indices
};

// v / divisor for 0 <= v < 2^31 as (v * multiplier) >> shift, exactly: multiplier is
// floor(2^shift / divisor) + 1 with shift = 31 + ceil(log2 divisor), so that its error times v
// stays below one part of the divisor (Granlund and Montgomery 1994). multiplier fits 32 bits.
struct BlockDivider {
  // 1 <= divisor < 2^31.
  explicit BlockDivider(int64_t divisor);
  uint32_t divisor;
  uint32_t multiplier;
  int shift;
};

// Writes the row's slots and returns how many are not -1. The same results, plain and vectorised.
int32_t LookUpSlots(const SlotRow& row, int64_t block_size);
int32_t LookUpSlotsHwy(const SlotRow& row, const BlockDivider& divider);

}  // namespace pagefuse::pagefuse_ops
