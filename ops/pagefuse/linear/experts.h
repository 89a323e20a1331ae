// SPDX-License-Identifier: Apache-2.0
// What products with experts share: which expert each row asks for, and the attribute `repeat`, rows
// of x that rows of y share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/ops/schema/op_def.h"

namespace pagefuse::pagefuse_ops {

// OutOfRange naming the row if an id of input `port` is not one of `experts`.
absl::Status CheckExpertIds(const KernelArgs& args, int port, int64_t experts);

// 0 to experts - 1. Negative ids count from the end, as indices of Gather do.
std::vector<int64_t> ExpertsOf(const KernelArgs& args, int port, int64_t experts);

inline constexpr char kRepeat[] = "repeat";
inline constexpr char kRepeatDoc[] =
    "rows of y that are made of the same row of x, one behind the other";

absl::StatusOr<int64_t> RepeatOf(const Node& node);

// Lines of a decomposition: `repeated` [T, K], the rows of x [M, K], each `repeat` times.
std::string RepeatedRowsText(int64_t repeat);

}  // namespace pagefuse::pagefuse_ops
