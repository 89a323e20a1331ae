// SPDX-License-Identifier: Apache-2.0
// Slots of tokens through a block table, for the ops that read caches by request.
#pragma once

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"

#include "pagefuse/ops/kernels/formats/grouped_row.h"
#include "pagefuse/ops/pagefuse/checks.h"
#include "pagefuse/ops/schema/kernel.h"

namespace pagefuse::pagefuse_ops {

// Tokens [first, first + count) of the request in row `request` of a block table.
struct TableRange {
  int64_t request = 0;
  int64_t first = 0;
  int64_t count = 0;
};
// The entries of the table that the range uses must be blocks of the cache (OutOfRange). The range
// lies in the table's columns.
absl::Status CheckUsedBlocks(const KernelArgs& args, int block_table, const TableRange& range,
                             const PagedBytes& paged);
// Calls f(slot) for each of these tokens in turn. Blocks without room hold no range but an empty one.
template <class F>
void ForSlots(const TensorArg& block_table, const TableRange& range, int64_t block_size,
              const F& f) {
  if (range.count == 0) return;
  int64_t entry = range.request * block_table.dim(1) + range.first / block_size;
  int64_t offset = range.first % block_size;
  for (int64_t left = range.count; left > 0; ++entry) {
    const int64_t slot = IndexAt(block_table, entry) * block_size + offset;
    const int64_t count = std::min(block_size - offset, left);
    for (int64_t i = 0; i < count; ++i) f(slot + i);
    left -= count;
    offset = 0;
  }
}

// The slot of token `position` of a request, through its row of the table.
int64_t SlotOf(const TensorArg& block_table, int64_t request, int64_t position, int64_t block_size);

}  // namespace pagefuse::pagefuse_ops
