// SPDX-License-Identifier: Apache-2.0
// cheaper-forms: brings what no pass matches any more to forms that move less. The angles of rotary
// embedding come so: a product of positions and frequencies that is transposed, doubled and halved.
//
//   MatMul (a [.., M, 1], b [.., 1, N])  =>  Mul (a, b)
//   Transpose (Mul (a, b))               =>  Mul (Transpose (a), Transpose (b)), if both are views
//   Transpose of axes of length 1        =>  Unsqueeze (Squeeze)
//   Slice (Cos (Concat (a, b)))          =>  Cos (a), if that is what it takes
//
// The numbers are the same but for the sign of a zero.
#include <algorithm>
#include <optional>
#include <vector>

#include "pagefuse/passes/edit/slice_cuts.h"
#include "pagefuse/passes/simplify/peephole.h"
#include "pagefuse/passes/simplify/simplify.h"

namespace pagefuse {
namespace {

bool IsOne(const Dim& dim) { return dim.constant() == 1; }

std::vector<int64_t> OnesOf(const Shape& shape) {
  std::vector<int64_t> axes;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (IsOne(shape[axis])) axes.push_back(axis);
  }
  return axes;
}

// True if all longer axes stay in order.
bool MovesOnlyOnes(const Shape& shape, const std::vector<int64_t>& perm) {
  std::vector<int64_t> longer;
  std::ranges::copy_if(perm, std::back_inserter(longer),
                       [&shape](int64_t axis) { return !IsOne(shape[static_cast<int>(axis)]); });
  return std::ranges::is_sorted(longer);
}

bool IsElementwise(const Node& node, const OpsetImports& opsets) {
  const OpDef* op = FindOpDef(node, opsets);
  return op && op->is_elementwise() && node.domain().empty() && node.num_outputs() == 1;
}

bool IsReadOnce(const Value& value) { return value.uses().size() == 1 && !value.is_output(); }

// The products of a sum of one.
bool ProductOfOneTerm(Node& node, Peephole& peephole) {
  const Shape *a = ShapeOf(node.input(0)), *b = ShapeOf(node.input(1));
  if (!a || !b || a->rank() < 2 || b->rank() < 2) return false;
  if (!IsOne((*a)[a->rank() - 1]) || !IsOne((*b)[b->rank() - 2])) return false;
  if (node.input(0)->dtype() != node.input(1)->dtype()) return false;
  return peephole.ReplaceByNode(node, "Mul", {node.input(0), node.input(1)});
}

// True if it costs nothing to read the value transposed.
bool IsTurnedForFree(const Value* value, const std::vector<int64_t>& perm) {
  const Shape* shape = ShapeOf(value);
  return shape && static_cast<size_t>(shape->rank()) == perm.size() &&
         (ConstantOf(value) || MovesOnlyOnes(*shape, perm));
}

bool TransposeOfBroadcast(Node& node, Peephole& peephole) {
  Node* inner = node.input(0)->producer();
  const auto perm = PermutationOf(node);
  if (!perm || !inner || inner->graph() != node.graph() || !IsReadOnce(*node.input(0)) ||
      !IsElementwise(*inner, peephole.opsets())) {
    return false;
  }
  const auto inputs = inner->inputs();
  if (!std::ranges::all_of(inputs, [&perm](const Value* v) { return IsTurnedForFree(v, *perm); })) {
    return false;
  }
  std::vector<Value*> turned;
  for (Value* input : inputs) {
    turned.push_back(peephole.AddNode(node, "Transpose", {input}, {{"perm", *perm}}));
  }
  return peephole.ReplaceByNode(node, inner->op_type(), std::move(turned), *inner);
}

bool TransposeOfOnes(Node& node, Peephole& peephole) {
  const Shape *from = ShapeOf(node.input(0)), *to = ShapeOf(node.output(0));
  const auto perm = PermutationOf(node);
  if (!from || !to || !perm || ConstantOf(node.input(0)) || !MovesOnlyOnes(*from, *perm)) {
    return false;
  }
  if (OnesOf(*from).empty()) return false;
  Value* longer =
      peephole.AddNode(node, "Squeeze", {node.input(0), peephole.Ints("axes", OnesOf(*from))});
  return peephole.ReplaceByNode(node, "Unsqueeze", {longer, peephole.Ints("axes", OnesOf(*to))});
}

// What gives the elements of a Concat from `begin` to `end` of its axis; null if no operand alone
// does.
Value* OperandAt(const Node& concat, int64_t axis, const AxisPart& part) {
  int64_t begin = 0;
  for (Value* operand : concat.inputs()) {
    const Shape* shape = ShapeOf(operand);
    const auto length = shape ? (*shape)[static_cast<int>(axis)].constant() : std::nullopt;
    if (!length) return nullptr;
    if (begin == part.begin && begin + *length == part.end) return operand;
    begin += *length;
  }
  return nullptr;
}

// The operand of the Concat above an elementwise op, of whose result the Slice takes what that
// operand gave.
Value* OperandOfSlice(const Node& slice, const SymbolicContents& contents) {
  const auto cut = OnlyCut(slice, contents);
  const auto part = cut ? PartOf(*slice.output(0), cut->axis, contents) : std::nullopt;
  const Node* inner = part ? part->whole->producer() : nullptr;
  const Node* concat = inner ? ProducerIf(inner->input(0), "Concat") : nullptr;
  if (!concat || concat->graph() != slice.graph() || inner->graph() != slice.graph())
    return nullptr;
  if (NormalAxis(IntOr(*concat, "axis", 0), ShapeOf(slice.output(0))->rank()) != cut->axis) {
    return nullptr;
  }
  return OperandAt(*concat, cut->axis, *part);
}

// Where all readers take such parts, none computes more than before.
bool SliceOfJoined(Node& node, Peephole& peephole) {
  Value* whole = node.input(0);
  const Node* inner = whole->producer();
  if (!inner || inner->num_inputs() != 1 || !IsElementwise(*inner, peephole.opsets()) ||
      whole->is_output()) {
    return false;
  }
  const auto takes_operand = [&](const Use& use) {
    return use.node->Is("Slice") && OperandOfSlice(*use.node, peephole.contents());
  };
  if (!std::ranges::all_of(whole->uses(), takes_operand)) return false;
  return peephole.ReplaceByNode(node, inner->op_type(), {OperandOfSlice(node, peephole.contents())},
                                *inner);
}

}  // namespace

std::unique_ptr<Pass> CheaperForms() {
  return MakePeepholePass(
      "cheaper-forms",
      "Brings what no pass matches any more to forms that move less: products of one term become "
      "Mul, Transposes of axes of length 1 become views, and parts of a Concat are computed from "
      "its operands.",
      {{"product-of-one-term", "MatMul", ProductOfOneTerm},
       {"transpose-of-broadcast", "Transpose", TransposeOfBroadcast},
       {"transpose-of-ones", "Transpose", TransposeOfOnes},
       {"slice-of-joined", "Slice", SliceOfJoined}});
}

}  // namespace pagefuse
