// Which expert each row of a grouped product asks for.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"

#include "pagefuse/ops/op_def.h"

namespace pagefuse::pagefuse_ops {

// InvalidArgument naming the row if an id of input `port` is not one of `experts`.
absl::Status CheckExpertIds(const KernelArgs& args, int port, int64_t experts);

// 0 to experts - 1. Negative ids count from the end, as indices of Gather do.
std::vector<int64_t> ExpertsOf(const KernelArgs& args, int port, int64_t experts);

}  // namespace pagefuse::pagefuse_ops
