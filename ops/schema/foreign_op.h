// SPDX-License-Identifier: Apache-2.0
// Ops of which only ports and kernels are known: those of libraries that were written for another
// runtime.
#pragma once

#include <algorithm>

#include "pagefuse/ops/schema/op_def.h"

namespace pagefuse {

// An attribute of this name stands for all: the op takes attributes of any name and kind. Such an op
// is foreign. What it computes may depend on more than its inputs, and computing it may do more: it
// runs once for each node in each run of a graph, never ahead of a run and never for two nodes. A
// variadic port of its may be empty.
inline constexpr char kAnyAttribute[] = "*";

inline bool IsForeign(const OpDef& op) {
  const auto& defs = op.attributes();
  return std::any_of(defs.begin(), defs.end(),
                     [](const AttributeDef& def) { return def.name == kAnyAttribute; });
}

}  // namespace pagefuse
