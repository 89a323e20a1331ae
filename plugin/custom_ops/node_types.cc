// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/plugin/custom_ops/node_types.h"

#include <string>

namespace pagefuse::ort {

TensorTypeAndShapeInfo InfoOf(DataType dtype, const std::optional<Shape>& shape) {
  TensorTypeAndShapeInfo info{static_cast<ElementType>(dtype)};
  if (!shape) return info;
  for (const Dim& dim : shape->dims()) {
    info.dims.push_back(dim.constant().value_or(-1));
    info.symbols.push_back(dim.known() && !dim.is_constant() ? dim.ToString() : "");
  }
  return info;
}

Shape ShapeOf(const TensorTypeAndShapeInfo& info) {
  Shape shape;
  for (size_t i = 0; i < info.dims.size(); ++i) {
    const std::string& symbol = info.symbols[i];
    if (!symbol.empty()) {
      shape.dims().push_back(Dim::Parse(symbol));
    } else {
      shape.dims().push_back(info.dims[i] >= 0 ? Dim(info.dims[i]) : Dim::Unknown());
    }
  }
  return shape;
}

}  // namespace pagefuse::ort
