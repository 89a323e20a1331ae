// The attribute `repeat` of products with experts: rows of x that rows of y share.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

#include "pagefuse/ir/graph.h"

namespace pagefuse::pagefuse_ops {

inline constexpr char kRepeat[] = "repeat";
inline constexpr char kRepeatDoc[] =
    "rows of y that are made of the same row of x, one behind the other";

absl::StatusOr<int64_t> RepeatOf(const Node& node);

// Lines of a decomposition: `repeated` [T, K], the rows of x [M, K], each `repeat` times.
std::string RepeatedRowsText(int64_t repeat);

}  // namespace pagefuse::pagefuse_ops
