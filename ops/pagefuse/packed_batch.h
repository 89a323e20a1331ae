// SPDX-License-Identifier: Apache-2.0
// The ports that describe a batch of packed tokens over paged caches, and checks of their values.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

#include "pagefuse/ops/schema/kernel.h"
#include "pagefuse/ops/schema/port.h"

namespace pagefuse {

// Input numbers of one op; -1: it has no such input. Lengths, starts and tables are int32.
struct PackedBatchPorts {
  int tokens = 0;            // [T, ...]: the op's first input
  int query_start_loc = -1;  // [B + 1]
  int seq_lens = -1;         // [B]
  int block_table = -1;      // [B, M]
  int slot_mapping = -1;     // [T]
};

template <size_t N>
constexpr PackedBatchPorts PackedBatchOf(const Ports<N>& inputs) {
  return {.tokens = 0,
          .query_start_loc = inputs.Find("query_start_loc"),
          .seq_lens = inputs.Find("seq_lens"),
          .block_table = inputs.Find("block_table"),
          .slot_mapping = inputs.Find("slot_mapping")};
}

// Starts are 0 first, T last, and never fall. InvalidArgument else.
absl::Status CheckQueryStarts(const KernelArgs& args, const PackedBatchPorts& ports);
// The length of sequence b is not negative and has blocks of `block_size` in the table.
// InvalidArgument else.
absl::Status CheckLength(const KernelArgs& args, const PackedBatchPorts& ports, int64_t b,
                         int64_t block_size);
// Entries [first, last) of sequence b's row of the table are in [0, num_blocks). OutOfRange else.
struct TableColumns {
  int64_t first = 0, last = 0;
};
absl::Status CheckBlocks(const KernelArgs& args, const PackedBatchPorts& ports, int64_t b,
                         TableColumns columns, int64_t num_blocks);

}  // namespace pagefuse
