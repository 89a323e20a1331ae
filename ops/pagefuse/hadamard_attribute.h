// SPDX-License-Identifier: Apache-2.0
// The attribute `hadamard` of ops that store index keys or compute index queries.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/ops/schema/shape_context.h"

namespace pagefuse::pagefuse_ops {

inline constexpr char kHadamard[] = "hadamard";
inline constexpr char kHadamardDoc[] =
    "1: each row is multiplied by H / sqrt(D), H the Sylvester-Hadamard matrix, behind its "
    "rotation by position and before it is quantised (and rounded to bfloat16 once more where it "
    "becomes codes)";

absl::StatusOr<bool> HasHadamard(const Node& node);
// Rows of input `port` have a power of two of elements, where they are transformed.
absl::Status CheckHadamardSize(const ShapeContext& c, int port);

}  // namespace pagefuse::pagefuse_ops
