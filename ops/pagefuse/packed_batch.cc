// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/pagefuse/packed_batch.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/pagefuse/checks.h"

namespace pagefuse {

using pagefuse_ops::InputRangeError;
using pagefuse_ops::InputValueError;

absl::Status CheckQueryStarts(const KernelArgs& args, const PackedBatchPorts& ports) {
  const int32_t* starts = args.input(ports.query_start_loc).as<const int32_t>();
  const int64_t num_sequences = args.input(ports.seq_lens).dim(0);
  const int64_t num_tokens = args.input(ports.tokens).dim(0);
  const auto invalid = [&](std::string_view what) {
    return InputValueError(args, ports.query_start_loc, what);
  };
  if (starts[0] != 0) return invalid(StrCat("expected 0 first, got ", starts[0]));
  for (int64_t b = 0; b < num_sequences; ++b) {
    if (starts[b + 1] >= starts[b]) continue;
    return invalid(StrCat("falls from ", starts[b], " to ", starts[b + 1], " at sequence ", b));
  }
  if (starts[num_sequences] == num_tokens) return absl::OkStatus();
  return invalid(StrCat("expected ", num_tokens, " last, the number of query tokens, got ",
                        starts[num_sequences]));
}

absl::Status CheckLength(const KernelArgs& args, const PackedBatchPorts& ports, int64_t b,
                         int64_t block_size) {
  const int64_t length = args.input(ports.seq_lens).as<const int32_t>()[b];
  if (length < 0) {
    return InputValueError(args, ports.seq_lens,
                           StrCat("expected 0 or more, got ", length, " at sequence ", b));
  }
  const int64_t columns = args.input(ports.block_table).dim(1);
  const int64_t needed = (length + block_size - 1) / block_size;
  if (needed <= columns) return absl::OkStatus();
  return InputValueError(args, ports.block_table,
                         StrCat("expected at least ", needed, " columns for the ", length,
                                " tokens of sequence ", b, " in \"seq_lens\", got ", columns));
}

absl::Status CheckBlocks(const KernelArgs& args, const PackedBatchPorts& ports, int64_t b,
                         TableColumns columns, int64_t num_blocks) {
  const TensorArg& table = args.input(ports.block_table);
  const int32_t* row = table.as<const int32_t>() + b * table.dim(1);
  // Every step looks at all tables: without a branch for each entry.
  bool outside = false;
  for (int64_t i = columns.first; i < columns.last; ++i) {
    outside |= static_cast<uint64_t>(int64_t{row[i]}) >= static_cast<uint64_t>(num_blocks);
  }
  if (!outside) return absl::OkStatus();
  for (int64_t i = columns.first; i < columns.last; ++i) {
    if (row[i] >= 0 && row[i] < num_blocks) continue;
    return InputRangeError(
        args, ports.block_table,
        StrCat("block ", row[i], " at [", b, ", ", i, "] is outside [0, ", num_blocks, ")"));
  }
  return absl::OkStatus();
}

}  // namespace pagefuse
