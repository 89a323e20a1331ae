// Compares shapes as far as they are known, and makes the checks of shape inference.
#pragma once

#include <optional>

#include "absl/status/status.h"

#include "pagefuse/ir/tensor/shape.h"
#include "pagefuse/ops/schema/shape_context.h"

namespace pagefuse {

// Two numbers that differ; symbols may yet agree.
bool Differ(const Dim& a, const Dim& b);
// Of one rank, without dims that differ.
bool MayAgree(const Shape& a, const Shape& b);

// Nothing for null: a shape of unknown rank.
std::optional<Shape> CopyOf(const Shape* shape);

// InvalidArgument unless input `i` is absent, of unknown shape, or of a shape that may be
// `expected` (unknown dims agree with all); or, of one element.
absl::Status ExpectShape(const ShapeContext& context, int i, const Shape& expected);
absl::Status ExpectOneElement(const ShapeContext& context, int i);

}  // namespace pagefuse
