// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/analysis/tokens/last_rows.h"

#include <algorithm>

#include "pagefuse/ops/registry/registry.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/op_types.h"
#include "pagefuse/passes/edit/slice_cuts.h"

namespace pagefuse {
namespace {

// -1, or S - 1 for `length` S.
bool IsLast(const Dim& index, const Dim& length) {
  return index.constant() == -1 || ProvablyEqual(index, length - Dim(1));
}

bool SlicesLast(const Node& node, const Dim& length, const SymbolicContents& contents) {
  const auto cut = OnlyCut(node, contents);
  if (!cut || cut->axis != 1) return false;
  const auto end = cut->end.constant();
  // No sequence is as long as this.
  const bool to_the_end = (end && *end >= INT32_MAX) || ProvablyEqual(cut->end, length);
  return to_the_end && IsLast(cut->start, length);
}

bool IsLastIndex(const Node& node, const TokenDependence& index, const Dim& length,
                 const SymbolicContents& contents) {
  if (const auto known = KnownDims(node.input(1), contents)) {
    return known->size() == 1 && IsLast((*known)[0], length);
  }
  if (index.role == TokenRole::kIndex) {
    return index.index.is_constant() && IsLast(index.index.constant(), length);
  }
  const Tensor* tensor = ConstantOf(node.input(1));
  if (!tensor || tensor->size() != 1) return false;
  const auto values = IntegerValues(*tensor);
  return values.ok() && (*values)[0] == -1;
}

// Everything but the last axis has length 1.
bool HasFeaturesOnly(const Value* value) {
  if (!value->shape()) return false;
  const auto& dims = value->shape()->dims();
  return dims.empty() || std::all_of(dims.begin(), dims.end() - 1,
                                     [](const Dim& dim) { return dim.constant() == 1; });
}

// What stands beside the rows is the same for all of them.
bool HasFeaturesOnlyBeside(const Node& node) {
  return std::all_of(node.inputs().begin() + 1, node.inputs().end(),
                     [](const Value* input) { return !input || HasFeaturesOnly(input); });
}

bool NormalisesLastAxis(const Node& node) {
  const bool norm = IsAnyOf(node, {"RMSNormalization", "LayerNormalization",
                                   "SimplifiedLayerNormalization", "Softmax", "LogSoftmax"});
  const int64_t axis = IntOr(node, "axis", -1);
  const auto& shape = node.input(0)->shape();
  return norm && shape && NormalAxis(axis, shape->rank()) == shape->rank() - 1 &&
         HasFeaturesOnlyBeside(node);
}

// The same columns of every row, in some order.
bool GathersColumns(const Node& node, const Shape& from) {
  const auto& columns = node.num_inputs() > 1 ? node.input(1)->shape() : std::nullopt;
  return node.Is("Gather") && columns && columns->rank() == 1 &&
         NormalAxis(IntOr(node, "axis", 0), from.rank()) == from.rank() - 1;
}

bool MultipliesRows(const Node& node) {
  if (node.Is("MatMulNBits", "com.microsoft") || node.Is("GatedLinear", "pagefuse")) return true;
  const bool fused = node.Is("FusedMatMul", "com.microsoft") && IntOr(node, "transA", 0) == 0 &&
                     IntOr(node, "transBatchA", 0) == 0 && IntOr(node, "transBatchB", 0) == 0;
  const auto& right = node.num_inputs() > 1 ? node.input(1)->shape() : std::nullopt;
  return (node.Is("MatMul") || fused || node.Is("Linear", "pagefuse")) && right &&
         right->rank() == 2;
}

bool IsOfPlaces(const Node& node) {
  const OpDef* def = OpRegistry::Global().Find(node.domain(), node.op_type(), INT64_MAX);
  return def && def->is_elementwise();
}

// The one row of each sequence, [B, 1, N] as [B, N].
bool GathersOnlyRow(const Node& node, const Shape& from, const SymbolicContents& contents) {
  if (!node.Is("Gather") || from.rank() != 3 || NormalAxis(IntOr(node, "axis", 0), 3) != 1) {
    return false;
  }
  const auto& index = node.input(1)->shape();
  const auto known = KnownInts(node.input(1), contents);
  return index && index->rank() <= 1 && known && known->size() == 1 &&
         ((*known)[0] == 0 || (*known)[0] == -1);
}

// Keeps all elements in their order.
bool IsViewOp(const Node& node) {
  return IsAnyOf(node, {"Reshape", "Squeeze", "Unsqueeze", "Flatten"});
}

// [B, N], or [B, 1, N]. (Inference may not know the 1 behind a Slice.)
bool IsRows(const Shape& shape) { return shape.rank() == 2 || shape.rank() == 3; }

// Rows of the same batch and as many columns.
bool IsSameRows(const Shape& from, const Shape& to) {
  return IsRows(from) && IsRows(to) && ProvablyEqual(from[0], to[0]) &&
         ProvablyEqual(from.back(0), to.back(0));
}

// Rows that are elementwise beside others stand on the same axes.
bool IsElementwiseOnRows(const Node& node, const std::vector<bool>& last, const Shape& to) {
  for (int i = 0; i < node.num_inputs(); ++i) {
    const Value* input = node.input(i);
    if (!input) continue;
    if (!last[i]) {
      if (!HasFeaturesOnly(input)) return false;
    } else if (!input->shape() || input->shape()->rank() != to.rank()) {
      return false;
    }
  }
  return true;
}

}  // namespace

bool SelectsLastRows(const Node& node, TokenAxes axes, const TokenDependence& index,
                     const TokenSources& sources, const SymbolicContents& contents) {
  const auto& shape = node.input(0)->shape();
  if (!shape || shape->rank() != 3 || axes.token != 1 || axes.per_token != 1 || axes.batch > 0)
    return false;
  const Dim& length = (*shape)[1];
  if (!ProvablyEqual(length, sources.sequence)) return false;
  if (node.Is("Slice")) return SlicesLast(node, length, contents);
  if (node.Is("Gather") && NormalAxis(IntOr(node, "axis", 0), 3) != 1) return false;
  // A row of each sequence, whole.
  const auto& taken = node.output(0)->shape();
  if (!taken || !IsSameRows(*shape, *taken)) return false;
  if (node.Is("GatherElements")) {
    const bool whole_rows = taken->rank() == 3 && (*taken)[1].constant() == 1;
    if (NormalAxis(IntOr(node, "axis", 0), 3) != 1 || !whole_rows) return false;
  }
  if (node.Is("GatherND")) {
    const auto& indices = node.input(1)->shape();
    if (IntOr(node, "batch_dims", 0) != 1 || !indices || indices->rank() != 2) return false;
  } else if (!node.Is("Gather") && !node.Is("GatherElements")) {
    return false;
  }
  return IsLastIndex(node, index, length, contents);
}

LastRowUse UseOfLastRows(const Node& node, const std::vector<bool>& last,
                         const SymbolicContents& contents) {
  const auto& from = node.input(0)->shape();
  const auto& to = node.output(0)->shape();
  if (!from || !to || !IsRows(*to)) return LastRowUse::kOther;
  if (IsOfPlaces(node)) {
    return IsElementwiseOnRows(node, last, *to) ? LastRowUse::kRowByRow : LastRowUse::kOther;
  }
  if (std::ranges::count(last, true) != 1 || !last[0] || !IsRows(*from)) return LastRowUse::kOther;
  if (NormalisesLastAxis(node) || GathersColumns(node, *from)) return LastRowUse::kAlongLast;
  if (MultipliesRows(node)) return LastRowUse::kRowByRow;
  const bool views = IsViewOp(node) || GathersOnlyRow(node, *from, contents);
  return views && IsSameRows(*from, *to) ? LastRowUse::kView : LastRowUse::kOther;
}

}  // namespace pagefuse
