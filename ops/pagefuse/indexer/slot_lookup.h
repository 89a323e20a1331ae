// What TopKSlots and ReqIndexToSlot share: token indices of a request to slots of the paged cache
// through its block table, and the checks of what is looked up.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

#include "pagefuse/ops/kernel.h"
#include "pagefuse/ops/op_def.h"

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

// How many valid indices a row of a table may have: columns * block_size, at most 2^31.
int64_t IndexLimit(int64_t columns, int64_t block_size);

// Checks the table entries that a row's valid indices use: OutOfRange for a negative one,
// InvalidArgument where a slot does not fit int32. `table_input` is the block table's input number
// and `request` its row, for the message.
absl::Status CheckSlotRow(const KernelArgs& args, const SlotRow& row, int64_t block_size,
                          int table_input, int64_t request);
// True if no row of the table can fail CheckSlotRow: every entry gives slots of int32.
bool WholeTableIsUsable(const TensorArg& table, int64_t block_size);

// The row of a token, but for where its slots go. Arguments are checked.
using SlotRowOf = SlotRow (*)(const KernelArgs& args, int64_t token, int64_t block_size);
// The plain kernel and the vectorised, parallel one of an op with the attribute `block_size` and
// the outputs slots int32 [T, K] and, of each row, how many are not -1: int32 [T].
void AddSlotLookupKernels(OpDef& op, SlotRowOf row_of);

}  // namespace pagefuse::pagefuse_ops
