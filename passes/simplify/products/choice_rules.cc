// Rules for selections and powers that exporters compute by other ops.
#include <array>

#include "pagefuse/passes/edit/ports.h"
#include "pagefuse/passes/simplify/arithmetic_rules.h"
#include "pagefuse/passes/simplify/products/product_rules.h"

namespace pagefuse {
namespace {

using ports::Where;

// a < b ? b : a
bool ChoiceByComparisonToMax(Node& node, Peephole& peephole) {
  const Node* condition = node.input(Where::kCondition)->producer();
  if (!condition) return false;
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

}  // namespace

bool AreTheSame(const Value* a, const Value* b) {
  if (a == b) return true;
  const auto number = NumberOf(a);
  return number && a->dtype() == b->dtype() && SameShapes(a, b) && number == NumberOf(b);
}

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
    const Node* negated = ProducerIf(node.input(side), "Neg");
    if (!negated || negated->input(0) != node.input(1 - side)) continue;
    return peephole.ReplaceByNode(node, "Abs", {node.input(1 - side)});
  }
  return false;
}

// Floats may be NaN, which is less than nothing and the maximum of everything.
bool WhereToMax(Node& node, Peephole& peephole) {
  return IsInteger(node.output(0)->dtype()) && ChoiceByComparisonToMax(node, peephole);
}

bool ChoiceToMax(Node& node, Peephole& peephole) {
  return IsFloatingPoint(node.output(0)->dtype()) && ChoiceByComparisonToMax(node, peephole);
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
  return peephole.ReplaceByNode(node, "Cast", {condition}, {{"to", type}});
}

}  // namespace pagefuse
