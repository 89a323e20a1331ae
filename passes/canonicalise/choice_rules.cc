#include "pagefuse/passes/canonicalise/choice_rules.h"

#include <array>

#include "pagefuse/passes/constants.h"
#include "pagefuse/passes/ports.h"

namespace pagefuse {
namespace {

using ports::Where;

// The number of a constant of one element.
std::optional<double> NumberOf(const Value* value) {
  const Tensor* tensor = value ? ConstantOf(value) : nullptr;
  return tensor ? ScalarNumber(*tensor) : std::nullopt;
}

bool AreTheSame(const Value* a, const Value* b) {
  if (a == b) return true;
  const auto number = NumberOf(a);
  return number && a->dtype() == b->dtype() && SameShapes(a, b) && number == NumberOf(b);
}

}  // namespace

bool PowToSqrt(Node& node, Peephole& peephole) {
  const auto exponent = NumberOf(node.input(1));
  if (!exponent || !IsFloatingPoint(node.input(0)->dtype())) return false;
  if (!SameShapes(node.output(0), node.input(0))) return false;
  if (*exponent == 0.5) return peephole.ReplaceByNode(node, "Sqrt", {node.input(0)});
  if (*exponent == -1) return peephole.ReplaceByNode(node, "Reciprocal", {node.input(0)});
  if (*exponent != -0.5) return false;
  Value* root = peephole.AddNode(node, "Sqrt", {node.input(0)});
  return peephole.ReplaceByNode(node, "Reciprocal", {root});
}

bool MaxToAbs(Node& node, Peephole& peephole) {
  if (node.num_inputs() != 2) return false;
  for (int side : {0, 1}) {
    const Node* negated = node.input(side)->producer();
    if (!negated || !negated->Is("Neg") || negated->input(0) != node.input(1 - side)) continue;
    return peephole.ReplaceByNode(node, "Abs", {node.input(1 - side)});
  }
  return false;
}

// Floats may be NaN, which is less than nothing and the maximum of everything.
bool WhereToMax(Node& node, Peephole& peephole) {
  const Node* condition = node.input(Where::kCondition)->producer();
  if (!condition || !IsInteger(node.output(0)->dtype())) return false;
  const bool less = condition->Is("Less") || condition->Is("LessOrEqual");
  const bool greater = condition->Is("Greater") || condition->Is("GreaterOrEqual");
  if (!less && !greater) return false;
  const std::array chosen = {node.input(Where::kTrue), node.input(Where::kFalse)};
  for (int first : {0, 1}) {
    if (!AreTheSame(chosen[first], condition->input(0)) ||
        !AreTheSame(chosen[1 - first], condition->input(1))) {
      continue;
    }
    // a < b ? a : b
    const bool least = (first == 0) == less;
    return peephole.ReplaceByNode(node, least ? "Min" : "Max", {chosen[first], chosen[1 - first]});
  }
  return false;
}

bool WhereToCast(Node& node, Peephole& peephole) {
  const DataType type = node.output(0)->dtype();
  const auto chosen = NumberOf(node.input(Where::kTrue));
  const auto other = NumberOf(node.input(Where::kFalse));
  const bool opposite = chosen == 0 && other == 1;
  if (!opposite && !(chosen == 1 && other == 0)) return false;
  Value* condition = node.input(Where::kCondition);
  if (!SameShapes(node.output(0), condition)) return false;
  if (opposite) condition = peephole.AddNode(node, "Not", {condition});
  return peephole.ReplaceByNode(node, "Cast", {condition}, [type](Node& cast) {
    cast.SetAttribute("to", MakeAttribute(static_cast<int64_t>(type)));
  });
}

}  // namespace pagefuse
