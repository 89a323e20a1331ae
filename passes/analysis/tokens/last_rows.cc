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

bool NormalisesLastAxis(const Node& node) {
  const bool norm = IsAnyOf(node, {"RMSNormalization", "LayerNormalization",
                                   "SimplifiedLayerNormalization", "Softmax", "LogSoftmax"});
  const int64_t axis = IntOr(node, "axis", -1);
  const auto& shape = node.input(0)->shape();
  return norm && shape && NormalAxis(axis, shape->rank()) == shape->rank() - 1;
}

bool MultipliesRows(const Node& node) {
  if (node.Is("MatMulNBits", "com.microsoft") ||
      IsAnyOf(node, {"GatedLinear", "Linear"}, "pagefuse")) {
    return true;
  }
  const bool fused = node.Is("FusedMatMul", "com.microsoft") && IntOr(node, "transA", 0) == 0;
  const auto& right = node.num_inputs() > 1 ? node.input(1)->shape() : std::nullopt;
  return (node.Is("MatMul") || fused) && right && right->rank() == 2;
}

bool IsElementwise(const Node& node) {
  const OpDef* def = OpRegistry::Global().Find(node.domain(), node.op_type(), INT64_MAX);
  return def && def->is_elementwise();
}

bool IsViewOp(const Node& node) {
  return IsAnyOf(node, {"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Gather"});
}

// [B, N] and [B, 1, N] alike. (Inference may not know the 1 behind a Slice.)
bool IsSameRows(const Shape& from, const Shape& to) {
  const auto fits = [](const Shape& shape) { return shape.rank() == 2 || shape.rank() == 3; };
  return fits(from) && fits(to) && ProvablyEqual(from[0], to[0]) &&
         ProvablyEqual(from.back(0), to.back(0));
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
  if (node.Is("GatherElements")) {
    const auto& taken = node.output(0)->shape();
    const bool whole_rows = taken && taken->rank() == 3 && (*taken)[1].constant() == 1 &&
                            ProvablyEqual((*taken)[2], (*shape)[2]);
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

LastRowUse UseOfLastRows(const Node& node, const std::vector<bool>& last) {
  const auto& from = node.input(0)->shape();
  const auto& to = node.output(0)->shape();
  if (!from || !to) return LastRowUse::kOther;
  if (to->rank() > 3) return LastRowUse::kOther;
  if (IsElementwise(node)) {
    for (int i = 0; i < node.num_inputs(); ++i) {
      if (node.input(i) && !last[i] && !HasFeaturesOnly(node.input(i))) return LastRowUse::kOther;
    }
    return LastRowUse::kRowByRow;
  }
  if (std::ranges::count(last, true) != 1 || !last[0]) return LastRowUse::kOther;
  if (NormalisesLastAxis(node) || MultipliesRows(node)) return LastRowUse::kRowByRow;
  return IsViewOp(node) && IsSameRows(*from, *to) ? LastRowUse::kView : LastRowUse::kOther;
}

}  // namespace pagefuse
