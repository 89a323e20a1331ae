// SPDX-License-Identifier: Apache-2.0
// What TopKSlots and ReqIndexToSlot share: their kernels, and the checks of what is looked up.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

#include "pagefuse/ops/kernels/indexer/slot_lookup.h"
#include "pagefuse/ops/schema/kernel.h"
#include "pagefuse/ops/schema/op_def.h"

namespace pagefuse::pagefuse_ops {

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
