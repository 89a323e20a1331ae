// SPDX-License-Identifier: Apache-2.0
// Notes of which weight of a file a constant was made, in metadata: options name weights so.
#pragma once

#include <string>
#include <string_view>

#include "pagefuse/passes/edit/graph_edit.h"

namespace pagefuse {

inline constexpr std::string_view kWeightOrigin = "pkg.pagefuse.from";

// The name of the weight; empty where nothing is noted.
inline std::string_view OriginOf(const Value& constant) {
  return FindMetadata(constant.metadata, kWeightOrigin).value_or("");
}

// Notes that a constant was made of another one, or of what that was made of.
inline void NoteOrigin(const Value& weight, Value& made) {
  const std::string_view origin = OriginOf(weight);
  SetMetadata(made.metadata, kWeightOrigin, origin.empty() ? weight.name() : std::string(origin));
  made.listed = true;  // a file has metadata of values in that list
}

// The same of an output of a node that is computed once, where it is a matrix, or a stack, and the
// node's first input is one.
inline void NoteOrigin(const Node& node, Value& made) {
  const auto is_matrix = [](const Value* value) {
    const Tensor* tensor = ConstantOf(value);
    return tensor != nullptr && tensor->rank() >= 2 && IsFloatingPoint(tensor->dtype());
  };
  if (is_matrix(node.input(0)) && is_matrix(&made)) NoteOrigin(*node.input(0), made);
}

}  // namespace pagefuse
