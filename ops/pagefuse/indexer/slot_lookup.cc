// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/pagefuse/indexer/slot_lookup.h"

#include <algorithm>
#include <limits>

#include "pagefuse/base/parallel.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/pagefuse/checks.h"

namespace pagefuse::pagefuse_ops {
namespace {

constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();

// Rows [begin, end): the slots, and how many `look_up` found.
template <typename RowOf, typename LookUp>
void FillRows(KernelArgs& args, int64_t begin, int64_t end, const RowOf& row_of,
              const LookUp& look_up) {
  for (int64_t t = begin; t < end; ++t) {
    SlotRow row = row_of(t);
    row.slots = args.output(0).as<int32_t>() + t * row.count;
    args.output(1).as<int32_t>()[t] = look_up(row);
  }
}

}  // namespace

int64_t IndexLimit(int64_t columns, int64_t block_size) {
  return std::min(CheckedMul(columns, block_size).value_or(kMaxInt32 + 1), kMaxInt32 + 1);
}

void AddSlotLookupKernels(OpDef& op, SlotRowOf row_of) {
  const auto plain = [row_of](KernelArgs& args) -> absl::Status {
    PF_ASSIGN_OR_RETURN(const int64_t block_size, args.node->IntAttribute("block_size", 1));
    FillRows(
        args, 0, args.output(0).dim(0), [&](int64_t t) { return row_of(args, t, block_size); },
        [&](const SlotRow& row) { return LookUpSlots(row, block_size); });
    return absl::OkStatus();
  };
  const auto hwy = [row_of](KernelArgs& args) -> absl::Status {
    PF_ASSIGN_OR_RETURN(const int64_t block_size, args.node->IntAttribute("block_size", 1));
    const BlockDivider divider(block_size);
    const TensorArg& slots = args.output(0);
    const int64_t row_bytes = slots.dim(1) * 2 * static_cast<int64_t>(sizeof(int32_t));
    ParallelFor(slots.dim(0), row_bytes, [&](int64_t begin, int64_t end) {
      FillRows(
          args, begin, end, [&](int64_t t) { return row_of(args, t, block_size); },
          [&](const SlotRow& row) { return LookUpSlotsHwy(row, divider); });
    });
    return absl::OkStatus();
  };
  op.AddKernel({.name = "reference", .run = plain})
      .AddKernel({.name = "hwy", .priority = 10, .run = hwy});
}

bool WholeTableIsUsable(const TensorArg& table, int64_t block_size) {
  const int32_t* entries = table.as<const int32_t>();
  int32_t least = 0;
  int32_t most = 0;
  for (int64_t i = 0; i < table.size(); ++i) {
    least = std::min(least, entries[i]);
    most = std::max(most, entries[i]);
  }
  return least >= 0 && (int64_t{most} + 1) * block_size - 1 <= kMaxInt32;
}

absl::Status CheckSlotRow(const KernelArgs& args, const SlotRow& row, int64_t block_size,
                          int table_input, int64_t request) {
  for (int64_t i = 0; i < row.count; ++i) {
    const int64_t index = row.indices[i];
    if (index < 0 || index >= row.limit) continue;
    const int64_t column = index / block_size;
    const int64_t block = row.table[column];
    const auto place = [&] { return StrCat("block ", block, " at [", request, ", ", column, "]"); };
    if (block < 0) {
      return InputRangeError(args, table_input, StrCat(place(), " is used but is no block"));
    }
    if (block * block_size + index % block_size <= kMaxInt32) continue;
    return InputValueError(
        args, table_input,
        StrCat(place(), " gives slot ", block * block_size + index % block_size, ", beyond int32"));
  }
  return absl::OkStatus();
}

}  // namespace pagefuse::pagefuse_ops
