// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>

#include "pagefuse/ir/tensor/absent_tensor.h"
#include "pagefuse/passes/analysis/functions/number_ranges.h"
#include "pagefuse/passes/edit/axes.h"
#include "pagefuse/passes/edit/constants.h"
#include "pagefuse/passes/simplify/products/product_rules.h"

namespace pagefuse {
namespace {

Value* Transposed(Node& before, Peephole& peephole, Value* value,
                  const std::vector<int64_t>& perm) {
  return peephole.AddNode(before, "Transpose", {value}, {{"perm", perm}});
}

// The row of the only 1 in each column of a matrix that is 0 elsewhere; empty for another.
std::vector<int64_t> PickedRows(const Tensor& matrix) {
  const int64_t rows = matrix.dims()[0], columns = matrix.dims()[1];
  const auto numbers = matrix.values<float>();
  std::vector<int64_t> picked(columns, -1);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      const float number = numbers[row * columns + column];
      if (number == 0) continue;
      if (number != 1 || picked[column] >= 0) return {};
      picked[column] = row;
    }
  }
  return std::ranges::find(picked, -1) == picked.end() ? picked : std::vector<int64_t>();
}

}  // namespace

int64_t OnlyAxis(const Node& reduction, const SymbolicContents& contents) {
  const Shape* shape = ShapeOf(reduction.input(0));
  const auto axes = KnownInts(reduction.input(1), contents);
  if (!shape || !axes || axes->size() != 1) return -1;
  return NormalAxis(axes->front(), shape->rank());
}

bool TopOneToMax(Node& node, Peephole& peephole) {
  const auto count = KnownInts(node.input(1), peephole.contents());
  if (!count || *count != std::vector<int64_t>{1}) return false;
  const Value* places = node.output(1);
  if (places && (!places->uses().empty() || places->is_output())) return false;
  const bool largest = IntOr(node, "largest", 1) != 0;
  Value* axis = peephole.Ints("axis", {IntOr(node, "axis", -1)});
  return peephole.ReplaceByNode(node, largest ? "ReduceMax" : "ReduceMin", {node.input(0), axis});
}

bool ReductionOfSquares(Node& node, Peephole& peephole) {
  std::vector<Value*> inputs(node.inputs().begin(), node.inputs().end());
  Value* x = inputs[0];
  Attributes kept = {{"keepdims", IntOr(node, "keepdims", 1) != 0}};
  const Attribute* empty = node.attribute("noop_with_empty_axes");
  if (empty) kept.Add("noop_with_empty_axes", *empty);
  inputs[0] = node.Is("ReduceL1") ? peephole.AddNode(node, "Abs", {x})
                                  : peephole.AddNode(node, "Mul", {x, x});
  if (!node.Is("ReduceL2")) return peephole.ReplaceByNode(node, "ReduceSum", inputs, kept);
  Value* sum = peephole.AddNode(node, "ReduceSum", inputs, kept);
  return peephole.ReplaceByNode(node, "Sqrt", {sum});
}

bool ProductWithOnesToSum(Node& node, Peephole& peephole) {
  const Tensor* column = ConstantOf(node.input(1));
  const Shape* shape = ShapeOf(node.input(0));
  if (!column || !shape || shape->rank() < 2 || column->dtype() != DataType::kFloat) return false;
  if (column->rank() != 2 || column->dims()[1] != 1 || column->dims()[0] < 2) return false;
  const float weight = column->values<float>()[0];
  if (!IsFilledWith(*column, weight)) return false;
  const bool mean = weight == 1.0f / static_cast<float>(column->dims()[0]);
  if (!mean && weight != 1.0f) return false;
  Value* axis = peephole.Ints("axis", {shape->rank() - 1});
  return peephole.ReplaceByNode(node, mean ? "ReduceMean" : "ReduceSum", {node.input(0), axis},
                                {{"keepdims", 1}});
}

bool ProductThatPicks(Node& node, Peephole& peephole) {
  constexpr int64_t kMostElements = 1 << 20;
  const Tensor* matrix = ConstantOf(node.input(1));
  const Shape* shape = ShapeOf(node.input(0));
  if (!matrix || !shape || shape->rank() < 2 || matrix->rank() != 2) return false;
  if (matrix->dtype() != DataType::kFloat || matrix->size() > kMostElements) return false;
  if (IsAbsent(*matrix)) return false;
  const std::vector<int64_t> rows = PickedRows(*matrix);
  // 0 times what is not finite is NaN.
  if (rows.empty() || !NumberRanges(peephole.contents()).Of(node.input(0)).finite()) return false;
  Value* at = peephole.Ints("places", rows);
  return peephole.ReplaceByNode(node, "Gather", {node.input(0), at}, {{"axis", shape->rank() - 1}});
}

bool ReductionOfTranspose(Node& node, Peephole& peephole) {
  const Node* transpose = ProducerIf(node.input(0), "Transpose");
  const auto perm = transpose ? PermutationOf(*transpose) : std::nullopt;
  const int64_t axis = perm ? OnlyAxis(node, peephole.contents()) : -1;
  // What else reads it, as a softmax written out does, reads the same axis.
  if (axis < 0 || axis + 1 == static_cast<int64_t>(perm->size()) || !IsReadOnce(node.input(0))) {
    return false;
  }
  const int64_t own = (*perm)[axis];
  if (own + 1 != static_cast<int64_t>(perm->size())) return false;
  Value* axes = peephole.Ints("axis", {own});
  Value* reduced =
      peephole.AddNode(node, node.op_type(), {transpose->input(0), axes}, {{"keepdims", 1}});
  Value* turned = Transposed(node, peephole, reduced, *perm);
  if (IntOr(node, "keepdims", 1) != 0) return peephole.Replace(node, turned);
  Value* dropped = peephole.Ints("axis", {axis});
  return peephole.ReplaceByNode(node, "Squeeze", {turned, dropped});
}

bool SoftmaxLessMost(Node& node, Peephole& peephole) {
  const Node* less = node.input(0)->producer();
  const Node* most = less && less->Is("Sub") ? less->input(1)->producer() : nullptr;
  const Shape* shape = ShapeOf(node.input(0));
  if (!most || !most->Is("ReduceMax") || most->input(0) != less->input(0) || !shape) return false;
  const int64_t axis = NormalAxis(IntOr(node, "axis", -1), shape->rank());
  if (IntOr(*most, "keepdims", 1) == 0 || OnlyAxis(*most, peephole.contents()) != axis)
    return false;
  return peephole.ReplaceByNode(node, node.op_type(), {less->input(0)}, {{"axis", axis}});
}

bool SoftmaxOfTranspose(Node& node, Peephole& peephole) {
  const Node* transpose = ProducerIf(node.input(0), "Transpose");
  const auto perm = transpose ? PermutationOf(*transpose) : std::nullopt;
  if (!perm || !IsReadOnce(node.input(0))) return false;
  const auto rank = static_cast<int64_t>(perm->size());
  const int64_t axis = NormalAxis(IntOr(node, "axis", -1), rank);
  if (axis + 1 == rank || (*perm)[axis] + 1 != rank) return false;
  Value* softmax =
      peephole.AddNode(node, node.op_type(), {transpose->input(0)}, {{"axis", rank - 1}});
  return peephole.ReplaceByNode(node, "Transpose", {softmax}, {{"perm", *perm}});
}

bool TransposedProduct(Node& node, Peephole& peephole) {
  const Node* product = node.input(0)->producer();
  auto perm = PermutationOf(node);
  if (!product || !product->Is("MatMul") || !perm || !IsReadOnce(node.input(0))) return false;
  const auto rank = static_cast<int64_t>(perm->size());
  if (rank < 2) return false;
  const auto place = [&perm](int64_t axis) { return std::ranges::find(*perm, axis); };
  // Columns come before rows.
  if (place(rank - 1) > place(rank - 2)) return false;
  bool turned = false;
  std::vector<int64_t> swap(rank);
  std::iota(swap.begin(), swap.end(), 0);
  std::swap(swap[rank - 1], swap[rank - 2]);
  for (const Value* operand : product->inputs()) {
    const Shape* shape = ShapeOf(operand);
    if (!shape || shape->rank() != rank) return false;
    const Node* before = ProducerIf(operand, "Transpose");
    const auto own = before ? PermutationOf(*before) : std::nullopt;
    turned = turned || (own && own->back() + 1 != rank);
  }
  // One that is transposed already loses a transpose; otherwise there would be more of them.
  if (!turned) return false;
  Value* left = Transposed(node, peephole, product->input(1), swap);
  Value* right = Transposed(node, peephole, product->input(0), swap);
  Value* other = peephole.AddNode(node, "MatMul", {left, right});
  std::iter_swap(place(rank - 1), place(rank - 2));
  return peephole.ReplaceByNode(node, "Transpose", {other}, {{"perm", *perm}});
}

}  // namespace pagefuse
