// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/analysis/indexing/conditions.h"

#include <algorithm>
#include <string>

namespace pagefuse {
namespace {

using Kind = IndexSymbol::Kind;

IndexSymbolPtr SymbolOf(const IndexExpr& condition, Kind kind) {
  const IndexSymbolPtr symbol = condition.symbol();
  return symbol && symbol->kind == kind ? symbol : nullptr;
}

// What is left of a condition where the others hold: of several of which one has to hold, those that
// the others leave. Nullopt: nothing.
std::optional<IndexExpr> LeftBeside(const Conditions& others, const IndexExpr& condition) {
  const std::string fails = Negated(condition).Key();
  const auto denies = [&fails](const IndexExpr& other) { return other.Key() == fails; };
  if (std::ranges::any_of(others, denies)) return std::nullopt;
  const IndexSymbolPtr either = SymbolOf(condition, Kind::kMax);
  if (!either) return condition;
  const auto first = LeftBeside(others, either->args[0]);
  const auto second = LeftBeside(others, either->args[1]);
  if (first && second) return MaxOf(*first, *second);
  return first ? first : second;
}

// All of them, as one: the least. Nothing is asked: 0.
IndexExpr AllOf(const Conditions& conditions) {
  if (conditions.empty()) return IndexExpr(0);
  IndexExpr least = conditions.front();
  for (size_t i = 1; i < conditions.size(); ++i) least = MinOf(least, conditions[i]);
  return least;
}

}  // namespace

IndexExpr Negated(const IndexExpr& condition) {
  if (const IndexSymbolPtr any = SymbolOf(condition, Kind::kMax)) {
    return MinOf(Negated(any->args[0]), Negated(any->args[1]));
  }
  if (const IndexSymbolPtr all = SymbolOf(condition, Kind::kMin)) {
    return MaxOf(Negated(all->args[0]), Negated(all->args[1]));
  }
  // not (x >= 0) is -x - 1 >= 0.
  return condition.Times(Dim(-1)) - IndexExpr(1);
}

Conditions NegationOf(const Conditions& conditions) {
  if (conditions.empty()) return Conditions{IndexExpr(-1)};
  IndexExpr most = Negated(conditions.front());
  for (size_t i = 1; i < conditions.size(); ++i) most = MaxOf(most, Negated(conditions[i]));
  const IndexSymbolPtr all = SymbolOf(most, Kind::kMin);
  return all ? Both({all->args[0]}, {all->args[1]}) : Conditions{most};
}

Conditions Both(const Conditions& a, const Conditions& b) {
  Conditions both;
  for (const IndexExpr& x : a) both.push_back(LeftBeside(b, x).value_or(x));
  for (const IndexExpr& x : b) both.push_back(LeftBeside(a, x).value_or(x));
  return both;
}

std::optional<Conditions> BothIfPossible(const Conditions& a, const Conditions& b) {
  for (const IndexExpr& x : a) {
    if (!LeftBeside(b, x)) return std::nullopt;
  }
  const Conditions both = Both(a, b);
  return TruthOf(both) == false ? std::nullopt : std::optional(both);
}

Conditions Either(const Conditions& a, const Conditions& b) {
  if (a.empty() || b.empty()) return {};
  return Conditions{MaxOf(AllOf(a), AllOf(b))};
}

}  // namespace pagefuse
