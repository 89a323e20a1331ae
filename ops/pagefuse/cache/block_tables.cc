// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/pagefuse/cache/block_tables.h"

#include "pagefuse/base/str_cat.h"

namespace pagefuse::pagefuse_ops {

absl::Status CheckUsedBlocks(const KernelArgs& args, int block_table, const TableRange& range,
                             const PagedBytes& paged) {
  if (range.count == 0) return absl::OkStatus();
  const TensorArg& table = args.input(block_table);
  const int64_t end = range.first + range.count;
  for (int64_t i = range.first / paged.block_size; i * paged.block_size < end; ++i) {
    const int64_t block = IndexAt(table, range.request * table.dim(1) + i);
    if (block >= 0 && block < paged.num_blocks) continue;
    return InputRangeError(args, block_table,
                           StrCat("expected blocks in [0, ", paged.num_blocks, "), got ", block,
                                  " at [", range.request, ", ", i, "]"));
  }
  return absl::OkStatus();
}

int64_t SlotOf(const TensorArg& block_table, int64_t request, int64_t position,
               int64_t block_size) {
  const int64_t block = IndexAt(block_table, request * block_table.dim(1) + position / block_size);
  return block * block_size + position % block_size;
}

}  // namespace pagefuse::pagefuse_ops
