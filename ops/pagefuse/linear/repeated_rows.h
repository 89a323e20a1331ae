// The attribute `repeat` of products with experts: rows of x that rows of y share.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/ir/graph.h"
#include "pagefuse/ops/shape_context.h"

namespace pagefuse::pagefuse_ops {

inline constexpr char kRepeat[] = "repeat";
inline constexpr char kRepeatDoc[] =
    "rows of y that are made of the same row of x, one behind the other";

absl::StatusOr<int64_t> RepeatOf(const Node& node);

// Sets output 0 to [M * repeat, n], of the type of input `x` [M, K].
absl::Status SetRepeatedRowsOutput(ShapeContext& c, int x, int64_t n);

// Lines of a decomposition: `repeated` [T, K], the rows of x [M, K], each `repeat` times.
std::string RepeatedRowsText(int64_t repeat);

}  // namespace pagefuse::pagefuse_ops
