// SPDX-License-Identifier: Apache-2.0
// Rules for selections and powers that exporters compute by other ops.
#include <array>
#include <cmath>
#include <optional>

#include "pagefuse/passes/analysis/functions/number_ranges.h"
#include "pagefuse/passes/edit/ports.h"
#include "pagefuse/passes/simplify/arithmetic_rules.h"
#include "pagefuse/passes/simplify/products/product_rules.h"

namespace pagefuse {
namespace {

using ports::Where;

// What a choice between the operands of a comparison is: a < b ? b : a is the greater one.
struct Extreme {
  Value* first = nullptr;
  Value* second = nullptr;
  bool least = false;
};
std::optional<Extreme> ExtremeOf(const Node& node) {
  const Node* condition = node.input(Where::kCondition)->producer();
  if (!condition) return std::nullopt;
  const bool less = condition->Is("Less") || condition->Is("LessOrEqual");
  const bool greater = condition->Is("Greater") || condition->Is("GreaterOrEqual");
  if (!less && !greater) return std::nullopt;
  const std::array chosen = {node.input(Where::kTrue), node.input(Where::kFalse)};
  for (int first : {0, 1}) {
    if (!AreTheSame(chosen[first], condition->input(0)) ||
        !AreTheSame(chosen[1 - first], condition->input(1))) {
      continue;
    }
    // a < b ? a : b
    return Extreme{chosen[first], chosen[1 - first], (first == 0) == less};
  }
  return std::nullopt;
}

bool ReplaceByExtreme(Node& node, const Extreme& of, Peephole& peephole) {
  return peephole.ReplaceByNode(node, of.least ? "Min" : "Max", {of.first, of.second});
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
  if (*exponent == -1) return peephole.ReplaceByNode(node, "Reciprocal", {node.input(0)});
  if (std::abs(*exponent) != 0.5) return false;
  // The power of minus infinity is infinite, or 0, and the root of it is NaN.
  NumberRanges ranges(peephole.contents());
  const bool same = ranges.NeverNegative(node.input(0)) ||
                    ranges.Of(node.input(0)).least > -NumberRange::kInfinity;
  if (!same) return false;
  if (*exponent == 0.5) return peephole.ReplaceByNode(node, "Sqrt", {node.input(0)});
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

bool WhereToMax(Node& node, Peephole& peephole) {
  const auto extreme = IsInteger(node.output(0)->dtype()) ? ExtremeOf(node) : std::nullopt;
  return extreme && ReplaceByExtreme(node, *extreme, peephole);
}

// Floats may be NaN, which is less than nothing and the maximum of everything: both have to be
// proved to be none.
bool ChoiceToMax(Node& node, Peephole& peephole) {
  const auto extreme = IsFloatingPoint(node.output(0)->dtype()) ? ExtremeOf(node) : std::nullopt;
  if (!extreme) return false;
  NumberRanges ranges(peephole.contents());
  return !ranges.Of(extreme->first).nan && !ranges.Of(extreme->second).nan &&
         ReplaceByExtreme(node, *extreme, peephole);
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
