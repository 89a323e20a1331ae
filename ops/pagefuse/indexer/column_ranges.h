// SPDX-License-Identifier: Apache-2.0
// The column range that each row of an index score sees: ks[m] <= n < ke[m].
#pragma once

#include <cstdint>

#include "absl/status/status.h"

#include "pagefuse/ops/schema/kernel.h"

namespace pagefuse::pagefuse_ops {

// Input numbers of the two int32 [M] tensors.
struct ColumnRangePorts {
  int begins = 0;
  int ends = 0;
};

// InvalidArgument naming the input unless 0 <= begin <= end <= columns in every row.
absl::Status CheckColumnRanges(const KernelArgs& args, const ColumnRangePorts& ports,
                               int64_t columns);

}  // namespace pagefuse::pagefuse_ops
