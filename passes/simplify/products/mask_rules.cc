// SPDX-License-Identifier: Apache-2.0

#include "pagefuse/ops/infer/exact_integers.h"
#include "pagefuse/ops/kernels/numeric/convert.h"
#include "pagefuse/passes/analysis/functions/number_ranges.h"
#include "pagefuse/passes/edit/constants.h"
#include "pagefuse/passes/edit/ports.h"
#include "pagefuse/passes/simplify/products/product_rules.h"

namespace pagefuse {
namespace {

using ports::Where;

// The condition that is 1 or 0 in the value.
Value* BoolBehind(const Value* value) {
  const Node* cast = ProducerIf(value, "Cast");
  const bool holds = cast && cast->input(0)->dtype() == DataType::kBool;
  return holds ? cast->input(0) : nullptr;
}

bool IsOpposite(const Value* a, const Value* b) {
  const Node *first = a->producer(), *second = b->producer();
  return (first && first->Is("Not") && first->input(0) == b) ||
         (second && second->Is("Not") && second->input(0) == a);
}

// The condition under which the value is another than 0: c of c ? x : 0.
struct Choice {
  Value* condition = nullptr;
  Value* chosen = nullptr;
  bool when = true;  // where the condition is so
};
// A bool as a number chooses 1, which `chosen` leaves open.
std::optional<Choice> ChoiceBesideZero(const Value* value) {
  if (Value* condition = BoolBehind(value)) return Choice{condition, nullptr, true};
  const Node* where = ProducerIf(value, "Where");
  if (!where) return std::nullopt;
  Value *yes = where->input(Where::kTrue), *no = where->input(Where::kFalse);
  if (NumberOf(no) == 0) return Choice{where->input(Where::kCondition), yes, true};
  if (NumberOf(yes) == 0) return Choice{where->input(Where::kCondition), no, false};
  return std::nullopt;
}

// 0 or 1.
Value* ZeroOrOne(Peephole& peephole, DataType type, bool one) {
  if (type == DataType::kInt32) return peephole.Constant("number", Tensor::Scalar<int32_t>(one));
  if (type == DataType::kInt64) return peephole.Constant("number", Tensor::Scalar<int64_t>(one));
  auto number = Tensor::Allocate(type, {});
  const float value = one ? 1.0f : 0.0f;
  if (!IsFloatingPoint(type) || !number.ok() ||
      !EncodeFromFloat(type, &value, 1, number->mutable_data()).ok()) {
    return nullptr;
  }
  return peephole.Constant("number", *std::move(number));
}

// Whether both types hold the sum of all of these, if they are ones.
bool CountExactly(const Value& ones, DataType type, DataType other) {
  const Shape* shape = ShapeOf(&ones);
  Dim count(1);
  for (int axis = 0; shape && axis < shape->rank(); ++axis) count = count * (*shape)[axis];
  return shape && HoldsExactly(type, 0, count) && HoldsExactly(other, 0, count);
}

// The number that a tensor of more than one element is filled with.
std::optional<double> FilledWith(const Value* value) {
  if (const Tensor* tensor = ConstantOf(value)) {
    for (double number : {0.0, 1.0}) {
      if (tensor->size() > 1 && IsFilledWith(*tensor, number)) return number;
    }
    return std::nullopt;
  }
  return FilledNumberOf(value);
}

// How often a node repeats the only element of axes: the shape to expand to, or nullopt.
std::optional<std::vector<int64_t>> RepeatsOf(const Node& node, const Shape& shape,
                                              const SymbolicContents& contents) {
  std::vector<int64_t> repeats(shape.rank(), 1);
  if (node.Is("Tile")) {
    const auto known = KnownInts(node.input(1), contents);
    if (!known || known->size() != repeats.size()) return std::nullopt;
    repeats = *known;
  } else {
    const Tensor* places = ConstantOf(node.input(1));
    const int64_t axis = NormalAxis(IntOr(node, "axis", 0), shape.rank());
    if (!places || places->rank() != 1 || places->size() < 2 || !IsFilledWith(*places, 0) ||
        axis >= shape.rank()) {
      return std::nullopt;
    }
    repeats[axis] = places->size();
  }
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const bool repeated = repeats[axis] != 1;
    if (repeats[axis] < 1 || (repeated && shape[axis] != Dim(1))) return std::nullopt;
  }
  return repeats;
}

// What !a | !b is the opposite of, a & b; null if it is another condition.
Value* OppositeOfNots(Node& before, Peephole& peephole, const Value* condition) {
  const Node* inner = condition->producer();
  const bool either = inner && inner->Is("Or");
  if (!either && !(inner && inner->Is("And"))) return nullptr;
  std::vector<Value*> operands;
  for (const Value* input : inner->inputs()) {
    const Node* opposite = ProducerIf(input, "Not");
    if (!opposite) return nullptr;
    operands.push_back(opposite->input(0));
  }
  return peephole.AddNode(before, either ? "And" : "Or", operands);
}

// The length of a list of ones.
Value* CountOfOnes(const Value* value) {
  const Shape* shape = ShapeOf(value);
  const bool ones = shape && shape->rank() == 1 && FilledNumberOf(value) == 1;
  return ones ? value->producer()->input(0) : nullptr;
}

// Zeros before or behind a value along one axis.
struct Padded {
  Value* value = nullptr;
  int64_t axis = -1, before = 0, behind = 0;
};
std::optional<Padded> ReadPad(const Value* value, const SymbolicContents& contents) {
  const Node* pad = ProducerIf(value, "Pad");
  if (!pad || StringOr(*pad, "mode", "constant") != "constant") {
    return std::nullopt;
  }
  if (pad->num_inputs() > 2 && pad->input(2) && NumberOf(pad->input(2)) != 0) return std::nullopt;
  if (pad->num_inputs() > 3 && pad->input(3)) return std::nullopt;
  const auto pads = KnownInts(pad->input(1), contents);
  if (!pads || pads->size() % 2 != 0) return std::nullopt;
  const size_t rank = pads->size() / 2;
  Padded padded = {.value = pad->input(0)};
  for (size_t axis = 0; axis < rank; ++axis) {
    const int64_t before = (*pads)[axis], behind = (*pads)[rank + axis];
    if (before == 0 && behind == 0) continue;
    if (padded.axis >= 0 || before < 0 || behind < 0) return std::nullopt;
    padded.axis = static_cast<int64_t>(axis);
    padded.before = before;
    padded.behind = behind;
  }
  return padded.axis < 0 ? std::nullopt : std::optional(padded);
}

int64_t Length(const Padded& padded) {
  const Shape* shape = ShapeOf(padded.value);
  return shape ? (*shape)[static_cast<int>(padded.axis)].constant().value_or(-1) : -1;
}

}  // namespace

bool ProductWithBoolToWhere(Node& node, Peephole& peephole) {
  for (int side : {0, 1}) {
    Value* condition = BoolBehind(node.input(side));
    Value* x = node.input(1 - side);
    // Weights of one or none are products elsewhere too.
    if (!condition || BoolBehind(x)) continue;
    // 0 times what is not finite is NaN.
    if (!NumberRanges(peephole.contents()).Of(x).finite()) continue;
    Value* zero = ZeroOrOne(peephole, node.output(0)->dtype(), false);
    return zero && peephole.ReplaceByNode(node, "Where", {condition, x, zero});
  }
  return false;
}

bool SumOfChoices(Node& node, Peephole& peephole) {
  const auto a = ChoiceBesideZero(node.input(0)), b = ChoiceBesideZero(node.input(1));
  if (!a || !b) return false;
  const bool opposite = a->condition == b->condition
                            ? a->when != b->when
                            : IsOpposite(a->condition, b->condition) && a->when == b->when;
  // Two bools are counted.
  if (!opposite || (!a->chosen && !b->chosen)) return false;
  const auto chosen = [&](const Choice& choice) {
    return choice.chosen ? choice.chosen : ZeroOrOne(peephole, node.output(0)->dtype(), true);
  };
  Value *first = chosen(*a), *second = chosen(*b);
  if (!first || !second) return false;
  return peephole.ReplaceByNode(node, "Where",
                                {a->condition, a->when ? first : second, a->when ? second : first});
}

bool OneLessBoolToNot(Node& node, Peephole& peephole) {
  Value* condition = BoolBehind(node.input(1));
  if (!condition || NumberOf(node.input(0)) != 1 || !SameShapes(node.output(0), node.input(1))) {
    return false;
  }
  Value* opposite = peephole.AddNode(node, "Not", {condition});
  return peephole.ReplaceByNode(node, "Cast", {opposite}, {{"to", node.output(0)->dtype()}});
}

bool CountOfBools(Node& node, Peephole& peephole) {
  // As floats, and an integer again.
  const Node* sum = node.input(0)->producer();
  const DataType type = node.output(0)->dtype();
  // ReduceSum has no narrower integers.
  if (!IsInteger(type) || BitWidth(type) < 32 || !sum || !sum->Is("ReduceSum") ||
      !IsFloatingPoint(node.input(0)->dtype())) {
    return false;
  }
  Value* condition = BoolBehind(sum->input(0));
  if (!condition || !CountExactly(*sum->input(0), sum->output(0)->dtype(), type)) return false;
  Value* numbers = peephole.AddNode(node, "Cast", {condition}, {{"to", *node.attribute("to")}});
  std::vector<Value*> inputs(sum->inputs().begin(), sum->inputs().end());
  inputs[0] = numbers;
  return peephole.ReplaceByNode(node, "ReduceSum", inputs, *sum);
}

bool WhereOfWhere(Node& node, Peephole& peephole) {
  // c ? (d ? x : y) : y, and c ? x : (d ? x : y).
  for (int branch : {Where::kTrue, Where::kFalse}) {
    const Node* inner = ProducerIf(node.input(branch), "Where");
    const int other = branch == Where::kTrue ? Where::kFalse : Where::kTrue;
    if (!inner || !IsReadOnce(node.input(branch)) ||
        !AreTheSame(inner->input(other), node.input(other))) {
      continue;
    }
    Value* both =
        peephole.AddNode(node, branch == Where::kTrue ? "And" : "Or",
                         {node.input(Where::kCondition), inner->input(Where::kCondition)});
    return peephole.ReplaceByNode(node, "Where",
                                  {both, inner->input(Where::kTrue), inner->input(Where::kFalse)});
  }
  return false;
}

bool ProductWithOnesToExpand(Node& node, Peephole& peephole) {
  for (int side : {0, 1}) {
    Value* x = node.input(1 - side);
    const Value* filled = node.input(side);
    if (SameShapes(node.output(0), x)) continue;
    if (FilledWith(filled) != (node.Is("Mul") ? 1 : 0)) continue;
    const Tensor* constant = ConstantOf(filled);
    Value* dims =
        constant ? peephole.Ints("shape", constant->dims()) : filled->producer()->input(0);
    return peephole.Replace(node, peephole.AddNode(node, "Expand", {x, dims}));
  }
  return false;
}

bool RepeatToExpand(Node& node, Peephole& peephole) {
  const Shape* shape = ShapeOf(node.input(0));
  const auto repeats = shape ? RepeatsOf(node, *shape, peephole.contents()) : std::nullopt;
  if (!repeats) return false;
  Value* dims = peephole.Ints("repeats", *repeats);
  return peephole.ReplaceByNode(node, "Expand", {node.input(0), dims});
}

bool NegationToNeg(Node& node, Peephole& peephole) {
  // Unsigned integers wrap around, and Neg has none.
  if (IsInteger(node.output(0)->dtype()) && !IsSigned(node.output(0)->dtype())) return false;
  if (node.Is("Sub")) {
    return NumberOf(node.input(0)) == 0 && SameShapes(node.output(0), node.input(1)) &&
           peephole.ReplaceByNode(node, "Neg", {node.input(1)});
  }
  for (int side : {0, 1}) {
    Value* x = node.input(1 - side);
    if (NumberOf(node.input(side)) != -1 || !SameShapes(node.output(0), x)) continue;
    return peephole.ReplaceByNode(node, "Neg", {x});
  }
  return false;
}

bool NotOfNots(Node& node, Peephole& peephole) {
  Value* opposite = OppositeOfNots(node, peephole, node.input(0));
  return opposite && peephole.Replace(node, opposite);
}

bool WhereOfNots(Node& node, Peephole& peephole) {
  Value* opposite = OppositeOfNots(node, peephole, node.input(Where::kCondition));
  return opposite &&
         peephole.ReplaceByNode(node, "Where",
                                {opposite, node.input(Where::kFalse), node.input(Where::kTrue)});
}

bool BitsToRemainder(Node& node, Peephole& peephole) {
  const DataType type = node.output(0)->dtype();
  if (type != DataType::kInt64 && type != DataType::kInt32) return false;
  for (int side : {0, 1}) {
    const Tensor* mask = ConstantOf(node.input(side));
    const auto number = NumberOf(node.input(side));
    if (!number || *number < 1 || *number >= 1 << 30) continue;
    const auto bits = static_cast<int64_t>(*number);
    if ((bits & (bits + 1)) != 0) continue;
    Tensor divisor = type == DataType::kInt64
                         ? Tensor::Of<int64_t>(mask->dims(), {bits + 1})
                         : Tensor::Of<int32_t>(mask->dims(), {static_cast<int32_t>(bits + 1)});
    Value* by = peephole.Constant("divisor", std::move(divisor));
    return peephole.ReplaceByNode(node, "Mod", {node.input(1 - side), by});
  }
  return false;
}

bool ProductOfBoolsToAnd(Node& node, Peephole& peephole) {
  const Node* inner = node.input(0)->producer();
  if (node.output(0)->dtype() != DataType::kBool || !inner || inner->num_inputs() != 2) {
    return false;
  }
  const bool both = inner->Is("Mul") || inner->Is("Min");
  if (!both && !inner->Is("Max") && !inner->Is("Add")) return false;
  Value *first = BoolBehind(inner->input(0)), *second = BoolBehind(inner->input(1));
  return first && second && peephole.ReplaceByNode(node, both ? "And" : "Or", {first, second});
}

bool CountToRange(Node& node, Peephole& peephole) {
  const Node* sum = node.Is("Sub") ? node.input(0)->producer() : &node;
  if (!sum || !sum->Is("CumSum") || node.output(0)->dtype() != DataType::kInt64) return false;
  const bool exclusive = IntOr(*sum, "exclusive", 0) != 0;
  const bool from_zero = node.Is("Sub") ? !exclusive && NumberOf(node.input(1)) == 1 : exclusive;
  Value* length =
      from_zero && IntOr(*sum, "reverse", 0) == 0 ? CountOfOnes(sum->input(0)) : nullptr;
  if (!length) return false;
  Value* axes = peephole.Ints("axis", {0});
  return peephole.ReplaceByNode(node, "Range", CountInputs(node, peephole, length, axes));
}

bool SumOfPadsToConcat(Node& node, Peephole& peephole) {
  auto first = ReadPad(node.input(0), peephole.contents());
  auto second = ReadPad(node.input(1), peephole.contents());
  if (!first || !second || first->axis != second->axis) return false;
  if (first->before > 0) std::swap(first, second);
  if (first->before != 0 || second->behind != 0 || Length(*first) != second->before ||
      Length(*second) != first->behind) {
    return false;
  }
  return peephole.ReplaceByNode(node, "Concat", {first->value, second->value},
                                {{"axis", first->axis}});
}

bool SigmoidToTanh(Node& node, Peephole& peephole) {
  if (NumberOf(node.input(1)) != 1) return false;
  // The other factor beside a 2.
  const auto beside_two = [](const Value* value) -> Value* {
    const Node* product = ProducerIf(value, "Mul");
    for (int side : {0, 1}) {
      if (product && NumberOf(product->input(side)) == 2) return product->input(1 - side);
    }
    return nullptr;
  };
  const Node* sigmoid = ProducerIf(beside_two(node.input(0)), "Sigmoid");
  Value* x = sigmoid ? beside_two(sigmoid->input(0)) : nullptr;
  return x && SameShapes(node.output(0), x) && peephole.ReplaceByNode(node, "Tanh", {x});
}

}  // namespace pagefuse
