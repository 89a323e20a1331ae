// Masks read back as conjunctions of limits on their indices.
#pragma once

#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/ir/graph/graph.h"
#include "pagefuse/ops/infer/infer.h"
#include "pagefuse/passes/analysis/indexing/index_expression.h"

namespace pagefuse {

// One factor of the conjunction, over the indices of the value it was read from.
struct MaskAtom {
  IndexExpression bound;           // visible only where bound <= 0
  const Value* padding = nullptr;  // or: visible only where padding[batch, key] is set
  bool indexed = false;            // padding is read by indices
  bool counted = false;            // or: visible where key < the ones of padding[batch]
  int batch_axis = -1;
  int key_axis = -1;
  std::vector<Dim> lengths;  // of the axes of the value that the factor was read from
};
using MaskPredicate = std::vector<MaskAtom>;  // empty: always visible

// The mask's rank, -1 if its shape is not known.
int MaskRank(const Value* value);
// InvalidArgument: `mask: "NAME" WHY`.
absl::Status MaskStoppedAt(const Value* value, std::string_view why);

// Whether a mask holds 0 and 1 alone, as bools do, what is cast from them, and mask inputs by what
// they are for.
bool IsZeroOrOne(const Value* value);

// Which elements of a mask show a key; InvalidArgument naming the value where the reading stopped.
absl::StatusOr<MaskPredicate> ReadMask(const Value* mask, const SymbolicContents& contents);

}  // namespace pagefuse
