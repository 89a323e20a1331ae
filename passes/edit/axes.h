// SPDX-License-Identifier: Apache-2.0
// Shapes of values, and which axes of their inputs nodes cut or permute.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "pagefuse/ir/graph/graph.h"
#include "pagefuse/ops/infer/infer.h"

namespace pagefuse {

// The dims of a value's shape; null if the rank is unknown.
inline const Shape* ShapeOf(const Value* value) {
  return value != nullptr && value->shape().has_value() ? &*value->shape() : nullptr;
}

// Where along the axis a part of a value lies.
struct AxisPart {
  Value* whole = nullptr;
  int64_t begin = 0, end = 0;
};
// Of an output of a Split, or a Slice along that axis alone; nullopt where bounds are not known.
std::optional<AxisPart> PartOf(const Value& value, int64_t axis, const SymbolicContents& contents);

// The permutation of a Transpose; nullopt if it is reversed implicitly and the rank is unknown.
std::optional<std::vector<int64_t>> PermutationOf(const Node& transpose);

// Whether a permutation leaves every axis where it is.
inline bool MovesNothing(const std::vector<int64_t>& perm) { return std::ranges::is_sorted(perm); }

}  // namespace pagefuse
