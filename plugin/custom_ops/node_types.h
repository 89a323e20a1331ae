// SPDX-License-Identifier: Apache-2.0
// Types and shapes of a graph's values as a library reads them, and back.
#pragma once

#include <optional>

#include "pagefuse/ir/tensor/shape.h"
#include "pagefuse/plugin/custom_ops/objects.h"

namespace pagefuse::ort {

// A shape of unknown rank has no dims.
TensorTypeAndShapeInfo InfoOf(DataType dtype, const std::optional<Shape>& shape);
// A dim without number and name is unknown.
Shape ShapeOf(const TensorTypeAndShapeInfo& info);

}  // namespace pagefuse::ort
