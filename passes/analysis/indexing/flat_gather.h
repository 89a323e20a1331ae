// Reads a Gather from a flattened matrix, whose index combines a row and a column.
#pragma once

#include <optional>

#include "pagefuse/ir/graph/graph.h"
#include "pagefuse/ops/infer/infer.h"

namespace pagefuse {

// x[rows, columns] of x [R, C], as the TorchScript exporter writes it:
//
//   Gather <axis = 0> (Reshape (x) [R * C] or [R * C, 1], Add (columns, Mul (rows, C)))
struct FlatGather {
  const Value* matrix = nullptr;
  const Value* rows = nullptr;  // of ranks that are lined up with that of the gather's index
  const Value* columns = nullptr;
};

std::optional<FlatGather> FindFlatGather(const Node& gather, const SymbolicContents& contents);

}  // namespace pagefuse
