// The guard of exporters against rows of attention that are NaN, kept on packed rows.
#pragma once

#include <optional>

#include "pagefuse/passes/graph_builder.h"

namespace pagefuse {

// Where(IsNaN(y), zero, y), the only reader of y.
struct RowGuard {
  Value* zero = nullptr;    // one number
  Value* result = nullptr;  // what the graph reads in place of y
};

// The guard that reads `y`, if there is one.
std::optional<RowGuard> FindRowGuard(const Value& y);

// The same guard on `rows`. A guard is elementwise, so that it may stand before the views that make
// y of the rows; there they meet the views behind it, and cancel.
Value* GuardedRows(GraphBuilder& builder, const RowGuard& guard, Value* rows);

}  // namespace pagefuse
