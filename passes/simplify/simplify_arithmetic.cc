// SPDX-License-Identifier: Apache-2.0
// simplify-arithmetic: brings small arithmetic that exporters write in several ways to one form,
// with the same bits.
#include <utility>

#include "pagefuse/ir/tensor/absent_tensor.h"
#include "pagefuse/passes/edit/constants.h"
#include "pagefuse/passes/edit/ports.h"
#include "pagefuse/passes/simplify/arithmetic_rules.h"
#include "pagefuse/passes/simplify/peephole.h"
#include "pagefuse/passes/simplify/simplify.h"

namespace pagefuse {
namespace {

bool IsConstant(const Value* value, double number) {
  const Tensor* tensor = ConstantOf(value);
  return tensor != nullptr && IsFilledWith(*tensor, number);
}

// True if the output is `kept` unchanged when the other operand is neutral: same shape (the neutral
// one does not widen it).
bool IsNeutralBeside(const Node& node, const Value* kept) {
  return kept != nullptr && SameShapes(node.output(0), kept);
}

// x * 1, x / 1, x ^ 1, x & true, x | false, and x + 0, x - 0 of integers (a float -0 + 0 is +0).
bool RemoveNeutral(Node& node, Peephole& peephole) {
  const std::string& op = node.op_type();
  if (node.num_inputs() != 2 || node.input(0) == nullptr || node.input(1) == nullptr) return false;
  const bool sum = op == "Add" || op == "Sub";
  if (sum && !IsInteger(node.input(0)->dtype())) return false;
  const double neutral = sum || op == "Or" ? 0 : 1;
  const bool either = op == "Mul" || op == "Add" || op == "And" || op == "Or";
  if (IsConstant(node.input(1), neutral) && IsNeutralBeside(node, node.input(0))) {
    return peephole.Replace(node, node.input(0));
  }
  if (either && IsConstant(node.input(0), neutral) && IsNeutralBeside(node, node.input(1))) {
    return peephole.Replace(node, node.input(1));
  }
  return false;
}

// Clip with one bound is a maximum or a minimum.
bool ClipToMaxOrMin(Node& node, Peephole& peephole) {
  // Bounds of older forms are attributes.
  if (node.attribute("min") || node.attribute("max")) return false;
  Value* low = node.input(ports::Clip::kLow);
  Value* high = node.input(ports::Clip::kHigh);
  if ((low == nullptr) == (high == nullptr)) {
    return low == nullptr && high == nullptr && peephole.Replace(node, node.input(0));
  }
  if (low != nullptr) return peephole.ReplaceByNode(node, "Max", {node.input(0), low});
  return peephole.ReplaceByNode(node, "Min", {node.input(0), high});
}

// 1 / x
bool DivToReciprocal(Node& node, Peephole& peephole) {
  const Tensor* one = ConstantOf(node.input(0));
  if (one == nullptr || !IsFloatingPoint(one->dtype()) || NumberOf(node.input(0)) != 1) {
    return false;
  }
  if (one->rank() > 0 && !SameShapes(node.output(0), node.input(1))) return false;
  return peephole.ReplaceByNode(node, "Reciprocal", {node.input(1)});
}

// A maximum within a minimum, in either order.
bool MaxOfMinToClip(Node& node, Peephole& peephole) {
  if (node.num_inputs() != 2) return false;
  for (int side : {0, 1}) {
    const Value* inner = node.input(side);
    const Node* bounded = inner->producer();
    const auto outer = ScalarOf(node.input(1 - side));
    if (!outer || !bounded || !bounded->Is(node.Is("Min") ? "Max" : "Min") ||
        bounded->num_inputs() != 2 || inner->uses().size() != 1 || inner->is_output()) {
      continue;
    }
    for (int other : {0, 1}) {
      const auto own = ScalarOf(bounded->input(1 - other));
      if (!own || ScalarOf(bounded->input(other))) continue;
      Value *low = bounded->input(1 - other), *high = node.input(1 - side);
      if (node.Is("Max")) std::swap(low, high);
      if (*ScalarOf(low) > *ScalarOf(high)) return false;
      return peephole.ReplaceByNode(node, "Clip", {bounded->input(other), low, high});
    }
  }
  return false;
}

// How many elements each result of a ReduceSum is the sum of; nullopt if that is no known number.
std::optional<int64_t> SummedElements(const Node& sum, const SymbolicContents& contents) {
  const Shape* shape = ShapeOf(sum.input(0));
  const auto axes = KnownInts(sum.input(1), contents);
  if (!shape || !axes || axes->empty()) return std::nullopt;
  int64_t count = 1;
  for (int64_t axis : *axes) {
    const int64_t normal = NormalAxis(axis, shape->rank());
    if (normal < 0 || normal >= shape->rank()) return std::nullopt;
    const auto length = (*shape)[static_cast<int>(normal)].constant();
    if (!length || *length < 1 || *length > (int64_t{1} << 24)) return std::nullopt;
    count *= *length;
  }
  return count;
}

// The sum of n elements, divided by n or multiplied by an exact 1 / n, is their mean.
bool SumToMean(Node& node, Peephole& peephole) {
  for (int side : {0, 1}) {
    if (node.Is("Div") && side == 1) break;
    const Node* sum = ProducerIf(node.input(side), "ReduceSum");
    if (!sum || !SameShapes(node.output(0), node.input(side))) continue;
    const auto count = SummedElements(*sum, peephole.contents());
    const bool exact = count && (node.Is("Div") || (*count & (*count - 1)) == 0);
    const double factor = exact ? static_cast<double>(*count) : 0;
    if (!exact || !IsFloatingPoint(node.output(0)->dtype())) continue;
    if (NumberOf(node.input(1 - side)) != (node.Is("Div") ? factor : 1 / factor)) continue;
    return peephole.ReplaceByNode(node, "ReduceMean", {sum->input(0), sum->input(1)},
                                  {{"keepdims", IntOr(*sum, "keepdims", 1)}});
  }
  return false;
}

// a + -b is a - b.
bool AddOfNegToSub(Node& node, Peephole& peephole) {
  for (int side : {1, 0}) {
    const Node* negation = ProducerIf(node.input(side), "Neg");
    if (!negation) continue;
    return peephole.ReplaceByNode(node, "Sub", {node.input(1 - side), negation->input(0)});
  }
  return false;
}

// x ^ 2 is x * x.
bool SquareToMul(Node& node, Peephole& peephole) {
  if (NumberOf(node.input(1)) != 2) return false;
  if (ConstantOf(node.input(1))->rank() > 0 && !SameShapes(node.output(0), node.input(0))) {
    return false;
  }
  return peephole.ReplaceByNode(node, "Mul", {node.input(0), node.input(0)});
}

bool RemoveDoubleNot(Node& node, Peephole& peephole) {
  const Node* inner = ProducerIf(node.input(0), "Not");
  return inner != nullptr && peephole.Replace(node, inner->input(0));
}

// Where(!c, a, b) is Where(c, b, a).
bool WhereOfNot(Node& node, Peephole& peephole) {
  const Node* inner = ProducerIf(node.input(0), "Not");
  return inner != nullptr &&
         peephole.ReplaceByNode(
             node, "Where",
             {inner->input(0), node.input(ports::Where::kFalse), node.input(ports::Where::kTrue)});
}

bool WhereOfConstant(Node& node, Peephole& peephole) {
  for (int branch = 1; branch <= 2; ++branch) {
    if (!IsConstant(node.input(0), branch == 1 ? 1 : 0)) continue;
    if (SameShapes(node.output(0), node.input(branch))) {
      return peephole.Replace(node, node.input(branch));
    }
  }
  return false;
}

bool LastDimIsOne(const Value& indices) {
  if (const Shape* shape = ShapeOf(&indices)) {
    return shape->rank() > 0 && shape->back(0) == Dim(1);
  }
  return false;
}

// The axes of an Unsqueeze that only adds a last axis, whatever the rank.
bool AddsLastAxis(const Node* node, const SymbolicContents& contents) {
  if (node == nullptr || !node->Is("Unsqueeze")) return false;
  const auto axes = KnownInts(node->input(1), contents);
  if (!axes.has_value() || axes->size() != 1) return false;
  const Shape* shape = ShapeOf(node->input(0));
  return axes->front() == -1 || (shape != nullptr && axes->front() == shape->rank());
}

// GatherND with indices [..., 1] is Gather on the first axis.
bool GatherNdToGather(Node& node, Peephole& peephole) {
  Value* indices = node.input(1);
  if (indices == nullptr || IntOr(node, "batch_dims", 0) != 0) return false;
  const Attributes on_first_axis = {{"axis", 0}};
  Node* producer = indices->producer();
  if (AddsLastAxis(producer, peephole.contents())) {
    return peephole.ReplaceByNode(node, "Gather", {node.input(0), producer->input(0)},
                                  on_first_axis);
  }
  if (!LastDimIsOne(*indices)) return false;
  Value* axes = peephole.Ints("last_axis", {-1});
  Value* squeezed = peephole.AddNode(node, "Squeeze", {indices, axes});
  return peephole.ReplaceByNode(node, "Gather", {node.input(0), squeezed}, on_first_axis);
}

// GatherElements of whole rows, by an index that is the same along each.
bool GatherElementsToGather(Node& node, Peephole& peephole) {
  const Shape *data = ShapeOf(node.input(0)), *from = ShapeOf(node.output(0));
  const Node* expand = node.input(1)->producer();
  if (!data || !from || data->rank() != 2 || !expand || !expand->Is("Expand")) return false;
  const Shape* column = ShapeOf(expand->input(0));
  const bool whole = NormalAxis(IntOr(node, "axis", 0), 2) == 0 && column && column->rank() == 2 &&
                     (*column)[1] == Dim(1) && ProvablyEqual((*column)[0], (*from)[0]) &&
                     ProvablyEqual((*from)[1], (*data)[1]);
  if (!whole) return false;
  Value* axes = peephole.Ints("last_axis", {1});
  Value* index = peephole.AddNode(node, "Squeeze", {expand->input(0), axes});
  return peephole.ReplaceByNode(node, "Gather", {node.input(0), index}, {{"axis", 0}});
}

// Whatever is taken of numbers that are all the same is that number, as types of tokens are.
bool GatherElementsOfOneNumber(Node& node, Peephole& peephole) {
  const Tensor* data = ConstantOf(node.input(0));
  if (!data || data->dtype() != DataType::kInt64 || data->size() == 0 || IsAbsent(*data)) {
    return false;
  }
  const int64_t number = data->values<int64_t>()[0];
  if (!IsFilledWith(*data, static_cast<double>(number))) return false;
  Value* shape = peephole.AddNode(node, "Shape", {node.input(1)});
  Value* scalar = peephole.Constant("number", Tensor::Scalar<int64_t>(number));
  return peephole.ReplaceByNode(node, "Expand", {scalar, shape});
}

// A list as a row, transposed, is the list as a column.
bool TransposedRowToColumn(Node& node, Peephole& peephole) {
  Node* row = node.input(0) == nullptr ? nullptr : node.input(0)->producer();
  const Shape* shape = ShapeOf(node.output(0));
  if (row == nullptr || !row->Is("Unsqueeze") || shape == nullptr || shape->rank() != 2) {
    return false;
  }
  const auto perm = node.IntsAttribute("perm", {1, 0});
  const auto axes = KnownInts(row->input(1), peephole.contents());
  const bool is_row = axes.has_value() && axes->size() == 1 && NormalAxis(axes->front(), 2) == 0;
  if (!is_row || !perm.ok() || *perm != std::vector<int64_t>{1, 0}) return false;
  Value* second = peephole.Ints("second_axis", {1});
  return peephole.ReplaceByNode(node, "Unsqueeze", {row->input(0), second});
}

}  // namespace

std::unique_ptr<Pass> SimplifyArithmetic() {
  return MakePeepholePass(
      "simplify-arithmetic",
      "Removes neutral operands and brings equal arithmetic to one form, with the same bits: "
      "Clip with one bound and with two, 1 / x, x ^ 2, x ^ 0.5, means, a + -b, floor division, "
      "max (x, -x), Where of Not, of a comparison of its operands and of 1 and 0, GatherND of "
      "one index, GatherElements of rows, and transposed lists.",
      {{"remove-neutral-operand", "Mul Div Pow And Or Add Sub", RemoveNeutral},
       {"clip-to-max-or-min", "Clip", ClipToMaxOrMin},
       {"div-to-reciprocal", "Div", DivToReciprocal},
       {"max-of-min-to-clip", "Max Min", MaxOfMinToClip},
       {"sum-to-mean", "Div Mul", SumToMean},
       {"add-of-neg-to-sub", "Add", AddOfNegToSub},
       {"square-to-mul", "Pow", SquareToMul},
       {"pow-to-sqrt", "Pow", PowToSqrt},
       {"max-to-abs", "Max", MaxToAbs},
       {"floor-division", "Sub Add Cast Where", FloorDivision},
       {"remove-double-not", "Not", RemoveDoubleNot},
       {"where-of-not", "Where", WhereOfNot},
       {"where-of-constant", "Where", WhereOfConstant},
       {"where-to-max", "Where", WhereToMax},
       {"where-to-cast", "Where", WhereToCast},
       {"gather-nd-to-gather", "GatherND", GatherNdToGather},
       {"gather-elements-of-one-number", "GatherElements", GatherElementsOfOneNumber},
       {"gather-elements-to-gather", "GatherElements", GatherElementsToGather},
       {"transposed-row-to-column", "Transpose", TransposedRowToColumn}});
}

}  // namespace pagefuse
