// SPDX-License-Identifier: Apache-2.0
// The guard of exporters against NaN rows of attention, which attention over a paged cache has itself.
#pragma once

#include <optional>

#include "pagefuse/passes/edit/graph_builder.h"

namespace pagefuse {

// Where(IsNaN(y), zero, y), the only reader of y.
struct NanGuard {
  Value* zero = nullptr;    // one number
  Value* result = nullptr;  // what the graph reads in place of y
};

// The guard that reads `y`, if there is one.
std::optional<NanGuard> FindNanGuard(const Value& y);

// Lets PagedAttention without a guard of its own be guarded by its attribute; false for other nodes.
bool TakeNanGuard(Node& node, const NanGuard& guard);

// The same guard on `rows`, which nothing else reads. A guard is elementwise, so that it may stand
// before the views that make y of the rows; there they meet the views behind it, and cancel.
Value* GuardedRows(GraphBuilder& builder, const NanGuard& guard, Value* rows);

}  // namespace pagefuse
