// SPDX-License-Identifier: Apache-2.0
// Compares shapes as far as they are known, makes the checks of shape inference, and says which node
// an error is about.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

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

// What inference knows of inputs that are there: all of them; nothing of one that is omitted. They
// must outlive it.
std::vector<ShapeContext::Known> KnownOf(const std::vector<Tensor>& inputs);

// InvalidArgument unless input `i` is absent, of unknown shape, or of a shape that may be
// `expected` (unknown dims agree with all); or, of one element.
absl::Status ExpectShape(const ShapeContext& context, int i, const Shape& expected);
absl::Status ExpectOneElement(const ShapeContext& context, int i);

// InvalidArgument: `node "x" (Op): <what>`; `node "x" (Op): attribute "axis": <what>`.
absl::Status NodeError(const Node& node, std::string_view what);
absl::Status AttributeError(const Node& node, std::string_view name, std::string_view what);

}  // namespace pagefuse
