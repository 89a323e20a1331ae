#include "pagefuse/passes/canonicalise/floor_division.h"

#include <algorithm>

#include "pagefuse/passes/constants.h"

namespace pagefuse {
namespace {

bool IsNumber(const Value* value, double number) {
  const Tensor* tensor = ConstantOf(value);
  return tensor != nullptr && ScalarNumber(*tensor) == number;
}

// True where `a` is below 0, or 0 itself, as exporters write that.
bool TellsNegative(const Value* value, const Value* a) {
  const Node* node = value->producer();
  if (!node) return false;
  // c == true
  if (node->Is("Equal")) {
    const Value* other = node->input(0);
    return other->dtype() == DataType::kBool && IsNumber(node->input(1), 1) &&
           TellsNegative(other, a);
  }
  if (node->Is("Not")) {
    const Node* equal = node->input(0)->producer();
    const Node* sign = equal && equal->Is("Equal") ? equal->input(0)->producer() : nullptr;
    return sign && sign->Is("Sign") && sign->input(0) == a && IsNumber(equal->input(1), 1);
  }
  return (node->Is("Less") || node->Is("LessOrEqual")) && node->input(0) == a &&
         IsNumber(node->input(1), 0);
}

// a mod b as a truth.
const Node* RemainderTold(const Value* value) {
  const Node* node = value->producer();
  while (node && (node->Is("Cast") || node->Is("Identity"))) node = node->input(0)->producer();
  const bool whole = node && node->Is("Mod") && IntOr(*node, "fmod", 0) == 0;
  return whole ? node : nullptr;
}

// The remainder of a quotient that is rounded to zero, where `less` is what is taken off of it to
// round it down: one where it is negative and something is left over.
const Node* RemainderOfFloor(const Node& quotient, const Value* less) {
  const Node* cast = less->producer();
  const Node* both = cast && cast->Is("Cast") ? cast->input(0)->producer() : nullptr;
  if (!both || !both->Is("And")) return nullptr;
  for (int side : {0, 1}) {
    const Node* mod = RemainderTold(both->input(side));
    if (mod && mod->input(0) == quotient.input(0) && mod->input(1) == quotient.input(1) &&
        TellsNegative(both->input(1 - side), quotient.input(0))) {
      return mod;
    }
  }
  return nullptr;
}

bool IsNeverNegative(const Value* value, const SymbolicContents& contents) {
  const auto known = KnownDims(value, contents);
  return known && std::all_of(known->begin(), known->end(), [](const Dim& dim) {
           return dim.known() && dim.offset() >= 0 &&
                  std::all_of(dim.terms().begin(), dim.terms().end(),
                              [](const Dim::Term& term) { return term.second >= 0; });
         });
}

}  // namespace

bool FloorDivision(Node& node, Peephole& peephole) {
  const Node* quotient = node.input(0) == nullptr ? nullptr : node.input(0)->producer();
  if (!quotient || !quotient->Is("Div") || node.input(1) == nullptr) return false;
  if (!IsInteger(node.output(0)->dtype()) || !SameShapes(node.output(0), node.input(0))) {
    return false;
  }
  const Tensor* divisor = ConstantOf(quotient->input(1));
  const auto number = divisor ? ScalarNumber(*divisor) : std::nullopt;
  const Node* remainder =
      number && *number > 0 ? RemainderOfFloor(*quotient, node.input(1)) : nullptr;
  if (!remainder) return false;
  Value* a = quotient->input(0);
  if (IsNeverNegative(a, peephole.contents())) return peephole.Replace(node, node.input(0));
  Value* whole = peephole.AddNode(node, "Sub", {a, remainder->output(0)});
  return peephole.ReplaceByNode(node, "Div", {whole, quotient->input(1)});
}

}  // namespace pagefuse
