// SPDX-License-Identifier: Apache-2.0
// Reads bool tensors, and floats that hide scores, as conjunctions of inequalities.
#include <algorithm>
#include <cmath>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/passes/analysis/indexing/conditions.h"
#include "pagefuse/passes/analysis/indexing/constant_band.h"
#include "pagefuse/passes/analysis/indexing/element_cases.h"
#include "pagefuse/passes/analysis/indexing/factors.h"
#include "pagefuse/passes/analysis/indexing/indexing_analysis.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/match_failure.h"
#include "pagefuse/passes/edit/op_types.h"

namespace pagefuse {
namespace {

// At an element of Trilu: where what it was made of is kept.
IndexExpr KeptByTrilu(IndexingAnalysis& reader, const Element& element) {
  const Node& node = *element.producer();
  const IndexExpr row = element.at[element.at.size() - 2], column = element.at.back();
  const bool shifted = node.num_inputs() > 1 && node.input(1) != nullptr;
  const IndexExpr k = shifted ? reader.ReadIndex({node.input(1), {}}) : IndexExpr();
  const IndexExpr above = column - row - k;
  return IntOr(node, "upper", 1) != 0 ? above : above.Times(Dim(-1));
}

// Where a constant shows keys, in a band along its last two axes.
absl::StatusOr<Conditions> ShownBy(const Element& element, const Tensor& constant,
                                   const Shows& shows) {
  const auto band = ReadBand(constant, shows);
  if (!band) return MatchFailure(*element.value, " is a constant that shows no band of keys");
  const IndexExpr ahead = element.at.back() - element.at[element.at.size() - 2];
  Conditions conditions;
  if (band->upper) conditions.push_back(IndexExpr(*band->upper) - ahead);
  if (band->lower) conditions.push_back(ahead - IndexExpr(*band->lower));
  return conditions;
}

// A bool as a number.
bool IsTruth(const Element& element) {
  return element.From("Cast") && element.producer()->input(0)->dtype() == DataType::kBool;
}

// Whether a cast makes 0 of 0 alone: what is as wide keeps every number, and narrower integers and
// floats lose some.
bool KeepsTruth(const Node& cast) {
  const DataType from = cast.input(0)->dtype(), to = cast.output(0)->dtype();
  if (from == DataType::kBool || to == DataType::kBool || from == to) return true;
  if (IsInteger(from)) return !IsInteger(to) || BitWidth(from) <= BitWidth(to);
  return IsFloatingPoint(from) && IsFloatingPoint(to) && KeepsNumbers(cast);
}

// The conditions that are one: 1 where all of some hold, compared with 0 or 1; what is not below the
// greater of two, or what the lesser of two is not below.
Conditions Unwrapped(const IndexExpr& condition) {
  const IndexSymbolPtr all = (condition + IndexExpr(1)).symbol();
  if (all && all->kind == IndexSymbol::Kind::kTruth) return all->args;
  for (const auto& [key, term] : condition.terms()) {
    const auto& [symbol, factor] = term;
    const bool least = symbol->kind == IndexSymbol::Kind::kMin && factor == Dim(1);
    const bool most = symbol->kind == IndexSymbol::Kind::kMax && factor == Dim(-1);
    if (!least && !most) continue;
    const IndexExpr rest = condition - IndexExpr::Of(symbol).Times(factor);
    return Both(Unwrapped(rest + symbol->args[0].Times(factor)),
                Unwrapped(rest + symbol->args[1].Times(factor)));
  }
  return Conditions{condition};
}

// Where a float is 0 that is a mask which hides keys, or such a mask and 0 or 1: no low number is
// made 0 by 1.
std::optional<Conditions> ReadZero(IndexingAnalysis& reader, const Element& element) {
  if (!IsFloatingPoint(element.value->dtype())) return std::nullopt;
  if (auto shown = reader.ReadHiding(element); shown.ok()) return *std::move(shown);
  for (int side : {0, 1}) {
    if (!element.From("Add")) break;
    const Element added = reader.Operand(element, 1 - side);
    if (!reader.IsZeroOrOne(added)) continue;
    const auto shown = reader.ReadHiding(reader.Operand(element, side));
    const auto zero = reader.ReadNegation(added);
    if (shown.ok() && zero.ok()) return Both(*shown, *zero);
  }
  return std::nullopt;
}

}  // namespace

bool IndexingAnalysis::IsZeroOrOne(const Element& unresolved, bool inputs) {
  const Reading reading(*this);
  if (reading.TooLong()) return false;
  const Element element = Source(unresolved);
  if (element.value->dtype() == DataType::kBool) return true;
  if (const auto number = Number(element)) return *number == 0 || *number == 1;
  if (const Tensor* constant = ConstantOf(element.value)) return HoldsUnits(*constant);
  const Node* node = element.producer();
  if (node == nullptr) return inputs;
  const auto operand = [&](int i) { return IsZeroOrOne(Operand(element, i), inputs); };
  if (IsAnyOf(*node, {"Cast", "Trilu", "ReduceMax", "ReduceMin"})) return operand(0);
  if (node->Is("Sub")) return Number(Operand(element, 0)) == 1.0 && operand(1);
  if (node->Is("Where")) return operand(1) && operand(2);
  if (!IsAnyOf(*node, {"Mul", "Max", "Min", "BitwiseAnd", "BitwiseOr"})) return false;
  for (int i = 0; i < node->num_inputs(); ++i) {
    if (!operand(i)) return false;
  }
  return true;
}

// x of not x, x xor true, 1 - x, x == 0, of an x that is 0 or 1.
std::optional<Element> IndexingAnalysis::NegatedIn(const Element& element) {
  if (element.From("Not")) return Operand(element, 0);
  const bool equal = element.From("Equal");
  if (!equal && !element.From("Xor") && !element.From("Sub")) return std::nullopt;
  for (int side : {0, 1}) {
    if (element.From("Sub") && side == 1) break;
    if (Number(Operand(element, side)) != (equal ? 0.0 : 1.0)) continue;
    const Element x = Operand(element, 1 - side);
    // Beside a mask other integers are compared, and may be taken from 1.
    if (trust_ == Trust::kExporter && equal && x.value->dtype() != DataType::kBool) continue;
    if (IsZeroOrOne(x, /*inputs=*/trust_ == Trust::kNothing)) return x;
  }
  return std::nullopt;
}

absl::StatusOr<Conditions> IndexingAnalysis::ReadConditions(const Element& unresolved) {
  const Reading reading(*this);
  const Element element = Source(unresolved);
  if (reading.TooLong()) return MatchFailure(*element.value, " is computed in too many steps");
  if (const auto number = Number(element)) {
    if (*number != 0) return Conditions{};
    return Conditions{IndexExpr(-1)};
  }
  if (const Tensor* constant = ConstantOf(element.value)) {
    auto shown = ShownBy(element, *constant, [](double x) { return x != 0; });
    if (shown.ok() || trust_ == Trust::kNothing) return shown;
  }
  const Node* node = element.producer();
  // What is joined of conditions is one of its own where it is not known of which part.
  if (node == nullptr || node->Is("Concat")) {
    return Conditions{IndexExpr::Of(MakeLoad(element.value, element.at)) - IndexExpr(1)};
  }
  // Of other numbers the least, or their bits, say nothing, and products may wrap around to 0.
  const bool of_units = IsAnyOf(*node, {"BitwiseAnd", "Min", "Max", "Mul"});
  if (of_units && trust_ == Trust::kNothing && !IsZeroOrOne(element)) {
    return MatchFailure(*element.value, " is of more than 0 and 1");
  }
  if (node->Is("And") || node->Is("Mul") || node->Is("BitwiseAnd") || node->Is("Min")) {
    if (node->num_inputs() != 2)
      return MatchFailure(*element.value, " joins more than two conditions");
    PF_ASSIGN_OR_RETURN(const Conditions a, ReadConditions(Operand(element, 0)));
    PF_ASSIGN_OR_RETURN(const Conditions b, ReadConditions(Operand(element, 1)));
    return Both(a, b);
  }
  // a or b is max(a, b) >= 0.
  if (node->Is("Or") || (node->Is("Max") && node->num_inputs() == 2)) {
    PF_ASSIGN_OR_RETURN(const Conditions a, ReadConditions(Operand(element, 0)));
    PF_ASSIGN_OR_RETURN(const Conditions b, ReadConditions(Operand(element, 1)));
    return Either(a, b);
  }
  if (node->Is("Trilu") && element.at.size() >= 2) {
    const IndexExpr kept = KeptByTrilu(*this, element);
    PF_ASSIGN_OR_RETURN(const Conditions inside, ReadConditions(Operand(element, 0)));
    return Both({kept}, inside);
  }
  // Some of them is true: at least one is counted.
  if (node->Is("ReduceMax")) {
    if (const IndexSymbolPtr count = ReadCounted(element)) {
      return Conditions{IndexExpr::Of(count) - IndexExpr(1)};
    }
  }
  if (const auto negated = NegatedIn(element)) return ReadNegation(*negated);
  if (node->Is("Cast")) return ReadTruthOf(element);
  if (node->Is("Where")) {
    const auto chosen = Number(Operand(element, 1));
    const auto other = Number(Operand(element, 2));
    if (chosen && other && *chosen != 0 && *other == 0) return ReadConditions(Operand(element, 0));
    // c and x, or what else numpy users write for it.
    if (other && *other == 0) {
      PF_ASSIGN_OR_RETURN(const Conditions a, ReadConditions(Operand(element, 0)));
      PF_ASSIGN_OR_RETURN(const Conditions b, ReadConditions(Operand(element, 1)));
      return Both(a, b);
    }
  }
  return ReadComparison(element);
}

absl::StatusOr<Conditions> IndexingAnalysis::ReadTruthOf(const Element& cast) {
  const Element element = Operand(cast, 0);
  if (!KeepsTruth(*cast.producer()) && !IsZeroOrOne(element)) {
    return MatchFailure(*cast.value, " may make 0 of another number");
  }
  auto conditions = ReadConditions(element);
  const DataType type = element.value->dtype();
  if (!conditions.ok() && cast.value->dtype() == DataType::kBool) {
    if (const auto zero = ReadZero(*this, element)) return NegationOf(*zero);
  }
  if (conditions.ok() || (type != DataType::kInt64 && type != DataType::kInt32)) return conditions;
  // What is not negative is true where it is above 0.
  const IndexExpr number = ReadIndex(element);
  if (!ProvablyNotNegative(number.Lower())) return conditions;
  return Conditions{number - IndexExpr(1)};
}

absl::StatusOr<Conditions> IndexingAnalysis::ReadNegation(const Element& unresolved) {
  const Element element = Source(unresolved);
  const Reading reading(*this);
  if (reading.TooLong()) return MatchFailure(*element.value, " is computed in too many steps");
  if (const auto negated = NegatedIn(element)) return ReadConditions(*negated);
  if (element.From("Cast")) {
    const Element x = Operand(element, 0);
    if (IsZeroOrOne(x)) return ReadNegation(x);
    const auto zero = element.value->dtype() == DataType::kBool ? ReadZero(*this, x) : std::nullopt;
    if (zero) return *zero;
  }
  if (const Tensor* constant = ConstantOf(element.value)) {
    auto hidden = ShownBy(element, *constant, [](double x) { return x == 0; });
    if (hidden.ok() || trust_ == Trust::kNothing) return hidden;
  }
  // not (a or b) is not a and not b.
  if (element.From("Or")) {
    PF_ASSIGN_OR_RETURN(const Conditions a, ReadNegation(Operand(element, 0)));
    PF_ASSIGN_OR_RETURN(const Conditions b, ReadNegation(Operand(element, 1)));
    return Both(a, b);
  }
  PF_ASSIGN_OR_RETURN(const Conditions conditions, ReadConditions(element));
  return NegationOf(conditions);
}

absl::StatusOr<Conditions> IndexingAnalysis::ReadComparison(const Element& element) {
  const Node& node = *element.producer();
  if (trust_ == Trust::kNothing) {
    const auto cases = ReadTruthCases(*this, element, /*inputs=*/false);
    if (cases) return WhereOneOf(*cases, [](double truth) { return truth != 0; });
  }
  const bool less = node.Is("Less");
  const bool greater = node.Is("Greater");
  // A truth as a number, against what lies between false and true.
  const auto bound = Number(Operand(element, 1));
  const Element truth = Operand(element, 0);
  if ((greater || less) && bound && *bound > 0 && *bound < 1 && IsTruth(truth)) {
    return greater ? ReadConditions(truth) : ReadNegation(truth);
  }
  if (less || node.Is("LessOrEqual")) {
    const IndexExpr gap = OperandIndex(element, 1) - OperandIndex(element, 0);
    return Unwrapped(less ? gap - IndexExpr(1) : gap);
  }
  if (greater || node.Is("GreaterOrEqual")) {
    const IndexExpr gap = OperandIndex(element, 0) - OperandIndex(element, 1);
    return Unwrapped(greater ? gap - IndexExpr(1) : gap);
  }
  if (node.Is("Equal")) {
    const Element first = Operand(element, 0);
    if (first.value->dtype() == DataType::kBool && bound == 1.0) return ReadConditions(first);
    if (first.From("Sign") && bound && std::abs(*bound) == 1) {
      return Conditions{OperandIndex(first, 0).Times(Dim(static_cast<int64_t>(*bound))) -
                        IndexExpr(1)};
    }
    if (bound == 0.0) {
      if (const auto conditions = ReadZero(*this, first)) return *conditions;
    }
    const IndexExpr form = ReadIndex(first);
    const IndexSymbolPtr holds = form.symbol();
    if (holds && holds->kind == IndexSymbol::Kind::kTruth && (bound == 0.0 || bound == 1.0)) {
      return bound == 1.0 ? holds->args : NegationOf(holds->args);
    }
    const IndexExpr gap = form - OperandIndex(element, 1);
    return Conditions{gap, gap.Times(Dim(-1))};
  }
  return MatchFailure(*element.value, " (", node.op_type(), ") is no range of indices");
}

absl::StatusOr<Conditions> IndexingAnalysis::ReadMask(const Element& element) {
  return element.value->dtype() == DataType::kBool ? ReadConditions(element) : ReadHiding(element);
}

absl::StatusOr<Conditions> IndexingAnalysis::ReadHiding(const Element& unresolved) {
  const Reading reading(*this);
  const Element element = Source(unresolved);
  if (reading.TooLong()) return MatchFailure(*element.value, " is computed in too many steps");
  auto shown = ReadHidingForm(element);
  if (shown.ok()) return shown;
  const auto cases = ReadCases(*this, element, /*inputs=*/true);
  const auto hides_or_shows = [this](const NumberCase& x) {
    return x.number == 0 || Hides(x.number);
  };
  if (!cases || !std::ranges::all_of(*cases, hides_or_shows)) return shown;
  return WhereOneOf(*cases, [](double number) { return number == 0; });
}

absl::StatusOr<Conditions> IndexingAnalysis::ReadHidingForm(const Element& element) {
  if (const auto number = Number(element)) {
    if (*number == 0) return Conditions{};
    return MatchFailure(*element.value, " adds a number to every score");
  }
  if (const Tensor* constant = ConstantOf(element.value)) {
    return ShownBy(element, *constant, [this](double x) {
      return x == 0 || Hides(x) ? std::optional(x == 0) : std::nullopt;
    });
  }
  const Node* node = element.producer();
  if (node == nullptr) return MatchFailure(*element.value, " is a mask that nothing explains");
  // Sums of integers wrap, and a float that they do not hold becomes anything.
  const DataType type = element.value->dtype();
  if (!IsFloatingPoint(type) || BitWidth(type) < 16) {
    return MatchFailure(*element.value, " is ", DataTypeName(type), ": expected a mask of floats");
  }
  if (node->Is("Cast")) return ReadHiding(Operand(element, 0));
  if (node->Is("Add") || node->Is("Min")) {
    PF_ASSIGN_OR_RETURN(const Conditions a, ReadHiding(Operand(element, 0)));
    PF_ASSIGN_OR_RETURN(const Conditions b, ReadHiding(Operand(element, 1)));
    return Both(a, b);
  }
  if (node->Is("Where")) {
    const auto chosen = Number(Operand(element, 1));
    const auto other = Number(Operand(element, 2));
    if (other && Hides(*other)) {
      PF_ASSIGN_OR_RETURN(const Conditions a, ReadConditions(Operand(element, 0)));
      PF_ASSIGN_OR_RETURN(const Conditions b, ReadHiding(Operand(element, 1)));
      return Both(a, b);
    }
    if (chosen && Hides(*chosen)) {
      PF_ASSIGN_OR_RETURN(const Conditions a, ReadNegation(Operand(element, 0)));
      PF_ASSIGN_OR_RETURN(const Conditions b, ReadHiding(Operand(element, 2)));
      return Both(a, b);
    }
    if ((chosen && *chosen != 0) || (other && *other != 0)) {
      return MatchFailure(*element.value, " chooses between numbers that hide nothing");
    }
    // One of two masks, each where it is chosen.
    PF_ASSIGN_OR_RETURN(const Conditions first, ReadHiding(Operand(element, 1)));
    PF_ASSIGN_OR_RETURN(const Conditions second, ReadHiding(Operand(element, 2)));
    PF_ASSIGN_OR_RETURN(const Conditions where, ReadConditions(Operand(element, 0)));
    PF_ASSIGN_OR_RETURN(const Conditions elsewhere, ReadNegation(Operand(element, 0)));
    return Both(Either(elsewhere, first), Either(where, second));
  }
  // No lower than a number that hides all the same.
  for (int side : {0, 1}) {
    if (!node->Is("Max") || node->num_inputs() != 2) break;
    const auto low = Number(Operand(element, side));
    if (low && Hides(*low)) return ReadHiding(Operand(element, 1 - side));
  }
  // Nothing above or below a diagonal, and what hides all on its other side.
  if (node->Is("Trilu") && element.at.size() >= 2) {
    const auto low = Number(Operand(element, 0));
    if (low && Hides(*low)) return Conditions{Negated(KeptByTrilu(*this, element))};
    if (low)
      return MatchFailure(*element.value, " keeps ", *low, ": expected a number that hides keys");
  }
  return MatchFailure(*element.value, " (", node->op_type(), ") is not understood as a mask");
}

}  // namespace pagefuse
