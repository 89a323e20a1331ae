// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/paging/nan_guard.h"

#include "pagefuse/passes/edit/graph_edit.h"

namespace pagefuse {
namespace {

// The node of that type that reads `value` as input `index`, or null.
const Node* ReaderOf(const Value& value, std::string_view op_type, int index) {
  for (const Use& use : value.uses()) {
    if (use.node->Is(op_type) && use.index == index) return use.node;
  }
  return nullptr;
}

// One number, in a shape that adds no axis to rows [T, H, D].
bool IsNumber(const Value* value) {
  constexpr int kRowsRank = 3;
  const Tensor* tensor = value ? ConstantOf(value) : nullptr;
  return tensor && tensor->size() == 1 && tensor->rank() <= kRowsRank;
}

}  // namespace

std::optional<NanGuard> FindNanGuard(const Value& y) {
  if (y.is_output() || y.uses().size() != 2) return std::nullopt;
  const Node* test = ReaderOf(y, "IsNaN", 0);
  const Node* choice = ReaderOf(y, "Where", 2);
  if (!test || !choice || test->graph() != choice->graph()) return std::nullopt;
  if (choice->input(0) != test->output(0) || !IsNumber(choice->input(1))) return std::nullopt;
  return NanGuard{.zero = choice->input(1), .result = choice->output(0)};
}

Value* GuardedRows(GraphBuilder& builder, const NanGuard& guard, Value* rows) {
  Value* guarded = builder.Add("Where", {builder.Add("IsNaN", {rows}), guard.zero, rows});
  guarded->producer()->name = guard.result->producer()->name;
  return guarded;
}

}  // namespace pagefuse
