// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/edit/nan_guard.h"

#include <algorithm>

#include "pagefuse/passes/edit/constants.h"
#include "pagefuse/passes/edit/graph_edit.h"

namespace pagefuse {
namespace {

constexpr const char* kAttribute = "nan_value";

// The node of that type that reads `value` as input `index`, or null.
const Node* ReaderOf(const Value& value, std::string_view op_type, int index) {
  for (const Use& use : value.uses()) {
    if (use.node->Is(op_type) && use.index == index) return use.node;
  }
  return nullptr;
}

// One number, in a shape that adds no axis to y, nor to rows [T, H, D].
bool IsNumber(const Value* value, const Value& y) {
  constexpr int kRowsRank = 3;
  const int most = y.shape() ? std::min(kRowsRank, y.shape()->rank()) : 1;
  const Tensor* tensor = value ? ConstantOf(value) : nullptr;
  return tensor && tensor->size() == 1 && tensor->rank() <= most;
}

}  // namespace

std::optional<NanGuard> FindNanGuard(const Value& y) {
  if (y.is_output() || y.uses().size() != 2) return std::nullopt;
  const Node* test = ReaderOf(y, "IsNaN", 0);
  const Node* choice = ReaderOf(y, "Where", 2);
  if (!test || !choice || test->graph() != choice->graph()) return std::nullopt;
  if (choice->input(0) != test->output(0) || !IsNumber(choice->input(1), y)) return std::nullopt;
  return NanGuard{.zero = choice->input(1), .result = choice->output(0)};
}

bool TakeNanGuard(Node& node, const NanGuard& guard) {
  const std::optional<double> number = NumberOf(guard.zero);
  if (!node.Is("PagedAttention", "pagefuse") || node.attribute(kAttribute) || !number) return false;
  node.SetAttribute(kAttribute, MakeAttribute(static_cast<float>(*number)));
  return true;
}

Value* GuardedRows(GraphBuilder& builder, const NanGuard& guard, Value* rows) {
  if (TakeNanGuard(*rows->producer(), guard)) return rows;
  Value* guarded = builder.Add("Where", {builder.Add("IsNaN", {rows}), guard.zero, rows});
  guarded->producer()->name = guard.result->producer()->name;
  return guarded;
}

}  // namespace pagefuse
