// Checks of the values that describe a batch of packed tokens over paged caches: query_start_loc
// [B + 1], seq_lens [B], block_table [B, M], all int32.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

#include "pagefuse/ops/kernel.h"

namespace pagefuse {

// Input indices of one op.
struct PackedBatchPorts {
  int query = 0;  // its first dim is T
  int query_start_loc = 0;
  int seq_lens = 0;
  int block_table = 0;
};

// Starts are 0 first, T last, and never fall. InvalidArgument else.
absl::Status CheckQueryStarts(const KernelArgs& args, const PackedBatchPorts& ports);
// The length of sequence b is not negative and has blocks of `block_size` in the table.
// InvalidArgument else.
absl::Status CheckLength(const KernelArgs& args, const PackedBatchPorts& ports, int64_t b,
                         int64_t block_size);
// Entries [first, last) of sequence b's row of the table are in [0, num_blocks). OutOfRange else.
struct TableRange {
  int64_t first = 0, last = 0;
};
absl::Status CheckBlocks(const KernelArgs& args, const PackedBatchPorts& ports, int64_t b,
                         TableRange range, int64_t num_blocks);

}  // namespace pagefuse
