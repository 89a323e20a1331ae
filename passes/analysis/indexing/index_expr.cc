// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/analysis/indexing/index_expr.h"

#include <algorithm>

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/infer/symbolic_arithmetic.h"

namespace pagefuse {
namespace {

bool IsZero(const Dim& dim) { return ProvablyEqual(dim, Dim(0)); }

// dim / divisor where that leaves nothing over.
std::optional<Dim> ExactQuotient(const Dim& dim, const Dim& divisor) {
  if (ProvablyEqual(dim, divisor)) return Dim(1);
  const Dim quotient = dim.FloorDiv(divisor);
  if (!ProvablyEqual(quotient * divisor, dim)) return std::nullopt;
  return quotient;
}

std::string KeysOf(const std::vector<IndexExpr>& forms) {
  std::string keys;
  for (const IndexExpr& form : forms) StrAppend(&keys, keys.empty() ? "" : ", ", form.Key());
  return keys;
}

IndexSymbolPtr MakeAtom(IndexSymbol::Kind kind, std::string_view name, std::vector<IndexExpr> args,
                        Dim extent = Dim::Unknown(), Dim divisor = Dim::Unknown()) {
  auto symbol = std::make_shared<IndexSymbol>();
  symbol->kind = kind;
  symbol->key =
      StrCat(name, "(", KeysOf(args), divisor.known() ? StrCat("; ", divisor.ToString()) : "", ")");
  symbol->args = std::move(args);
  symbol->extent = std::move(extent);
  symbol->divisor = std::move(divisor);
  return symbol;
}

IndexSymbolPtr MakeQuotient(const IndexExpr& x, const Dim& divisor) {
  const Dim upper = x.Upper();
  const bool bounded = ProvablyNotNegative(x.Lower()) && upper.known();
  Dim extent;
  if (bounded) {
    const std::optional<Dim> exact = ExactQuotient(upper + Dim(1), divisor);
    extent = exact ? *exact : upper.FloorDiv(divisor) + Dim(1);
  }
  return MakeAtom(IndexSymbol::Kind::kDiv, "div", {x}, extent, divisor);
}

IndexSymbolPtr MakeRemainder(const IndexExpr& x, const Dim& divisor) {
  return MakeAtom(IndexSymbol::Kind::kMod, "mod", {x}, divisor, divisor);
}

IndexExpr Extreme(IndexSymbol::Kind kind, std::string_view name, IndexExpr a, IndexExpr b) {
  if (b.Key() < a.Key()) std::swap(a, b);
  if (a.Key() == b.Key()) return a;
  return IndexExpr::Of(MakeAtom(kind, name, {a, b}));
}

}  // namespace

bool ProvablyNotNegative(const Dim& dim) { return IsNonNegative(dim); }

IndexExpr IndexExpr::Of(IndexSymbolPtr symbol) {
  IndexExpr form;
  form.Add(symbol, Dim(1));
  return form;
}

IndexSymbolPtr IndexExpr::symbol() const {
  if (terms_.size() != 1 || !IsZero(constant_)) return nullptr;
  const Term& term = terms_.begin()->second;
  return ProvablyEqual(term.second, Dim(1)) ? term.first : nullptr;
}

Dim IndexExpr::Step(const IndexExpr& axis) const {
  const IndexSymbolPtr symbol = axis.symbol();
  const auto term = symbol ? terms_.find(symbol->key) : terms_.end();
  return term == terms_.end() ? Dim(0) : term->second.second;
}

bool IndexExpr::Mentions(const std::string& key) const {
  return std::ranges::any_of(terms_, [&](const auto& entry) {
    const IndexSymbol& symbol = *entry.second.first;
    return symbol.key == key || std::ranges::any_of(symbol.args, [&](const IndexExpr& arg) {
             return arg.Mentions(key);
           });
  });
}

void IndexExpr::Add(const IndexSymbolPtr& symbol, const Dim& coefficient) {
  const auto [it, inserted] = terms_.emplace(symbol->key, Term{symbol, coefficient});
  if (!inserted) it->second.second = it->second.second + coefficient;
  if (IsZero(it->second.second)) terms_.erase(it);
}

IndexExpr IndexExpr::operator+(const IndexExpr& other) const {
  IndexExpr sum = *this;
  sum.constant_ = sum.constant_ + other.constant_;
  for (const auto& [key, term] : other.terms_) sum.Add(term.first, term.second);
  sum.JoinRemainders();
  return sum;
}

IndexExpr IndexExpr::operator-(const IndexExpr& other) const {
  return *this + other.Times(Dim(-1));
}

IndexExpr IndexExpr::Times(const Dim& factor) const {
  IndexExpr product(constant_ * factor);
  for (const auto& [key, term] : terms_) product.Add(term.first, term.second * factor);
  return product;
}

void IndexExpr::JoinRemainders() {
  while (JoinOne()) {
  }
}

bool IndexExpr::JoinOne() {
  for (const auto& [key, term] : terms_) {
    const IndexSymbolPtr quotient = term.first;
    if (quotient->kind != IndexSymbol::Kind::kDiv) continue;
    const Dim coefficient = term.second;
    const IndexExpr& x = quotient->args[0];
    const IndexSymbolPtr remainder = MakeRemainder(x, quotient->divisor);
    const auto found = terms_.find(remainder->key);
    if (found != terms_.end() &&
        ProvablyEqual(coefficient, found->second.second * quotient->divisor)) {
      const Dim factor = found->second.second;
      Add(quotient, coefficient * Dim(-1));
      Add(remainder, factor * Dim(-1));
      *this = *this + x.Times(factor);
      return true;
    }
    const std::optional<Dim> factor = ExactQuotient(coefficient * Dim(-1), quotient->divisor);
    const bool whole = factor.has_value() && !x.terms_.empty() &&
                       std::ranges::all_of(x.terms_, [&](const auto& entry) {
                         const auto mine = terms_.find(entry.first);
                         return mine != terms_.end() &&
                                ProvablyEqual(mine->second.second, entry.second.second * *factor);
                       });
    if (!whole) continue;
    IndexExpr rest = *this;
    rest.Add(quotient, coefficient * Dim(-1));
    rest.constant_ = rest.constant_ - x.constant_ * *factor;
    for (const auto& [name, part] : x.terms_) {
      rest.Add(part.first, part.second * *factor * Dim(-1));
    }
    rest.Add(remainder, *factor);
    *this = rest;
    return true;
  }
  return false;
}

std::string IndexExpr::Key() const {
  std::string key;
  for (const auto& [name, term] : terms_) {
    const bool one = ProvablyEqual(term.second, Dim(1));
    StrAppend(&key, key.empty() ? "" : " + ", one ? "" : StrCat("(", term.second.ToString(), ")*"),
              name);
  }
  if (key.empty() || !IsZero(constant_)) {
    StrAppend(&key, key.empty() ? "" : " + ", constant_.ToString());
  }
  return key;
}

size_t IndexExpr::Length() const {
  size_t length = 0;
  for (const auto& [key, term] : terms_) length += key.size();
  return length;
}

Dim IndexExpr::Lower() const {
  Dim lower = constant_;
  for (const auto& [key, term] : terms_) {
    if (!term.first->extent.known()) return Dim::Unknown();
    if (ProvablyNotNegative(term.second)) continue;
    if (!ProvablyNotNegative(term.second * Dim(-1))) return Dim::Unknown();
    lower = lower + term.second * (term.first->extent - Dim(1));
  }
  return lower;
}

Dim IndexExpr::Upper() const { return Times(Dim(-1)).Lower() * Dim(-1); }

bool IndexExpr::ProvablyIn(const Dim& first, const Dim& end) const {
  return ProvablyNotNegative(Lower() - first) && ProvablyNotNegative(end - Upper() - Dim(1));
}

IndexSymbolPtr MakeAxis(std::string key, Dim extent, std::vector<Dim> also_extent) {
  auto symbol = std::make_shared<IndexSymbol>();
  symbol->key = std::move(key);
  symbol->extent = std::move(extent);
  symbol->also_extent = std::move(also_extent);
  return symbol;
}

IndexSymbolPtr MakePart(const IndexSymbolPtr& axis, Dim extent, std::string_view name) {
  auto symbol = std::make_shared<IndexSymbol>();
  symbol->key = StrCat(axis->key, " of ", name);
  symbol->extent = std::move(extent);
  symbol->args = {IndexExpr::Of(axis)};
  return symbol;
}

IndexSymbolPtr MakeLoad(Value* tensor, std::vector<IndexExpr> at) {
  auto symbol = std::make_shared<IndexSymbol>();
  symbol->kind = IndexSymbol::Kind::kLoad;
  symbol->key = StrCat("\"", tensor->name(), "\"[", KeysOf(at), "]");
  symbol->tensor = tensor;
  symbol->args = std::move(at);
  if (tensor->dtype() == DataType::kBool) symbol->extent = Dim(2);
  if (tensor->dtype() == DataType::kUint8) symbol->extent = Dim(256);
  return symbol;
}

IndexExpr MaxOf(IndexExpr a, IndexExpr b) {
  if (ProvablyNotNegative((a - b).Lower())) return a;
  if (ProvablyNotNegative((b - a).Lower())) return b;
  return Extreme(IndexSymbol::Kind::kMax, "max", std::move(a), std::move(b));
}

IndexExpr MinOf(IndexExpr a, IndexExpr b) {
  if (ProvablyNotNegative((a - b).Lower())) return b;
  if (ProvablyNotNegative((b - a).Lower())) return a;
  return Extreme(IndexSymbol::Kind::kMin, "min", std::move(a), std::move(b));
}

IndexExpr WithinColumns(const IndexExpr& bound, const IndexSymbolPtr& axis) {
  if (bound.symbol() || bound.is_constant() || !axis->extent.known()) return bound;
  return MaxOf(MinOf(bound, IndexExpr(axis->extent)), IndexExpr(0));
}

IndexSymbolPtr MakeCount(const IndexSymbolPtr& axis, std::vector<IndexExpr> conditions) {
  std::vector<IndexExpr> args = {IndexExpr::Of(axis)};
  std::ranges::sort(conditions,
                    [](const IndexExpr& a, const IndexExpr& b) { return a.Key() < b.Key(); });
  args.insert(args.end(), conditions.begin(), conditions.end());
  return MakeAtom(IndexSymbol::Kind::kCount, "count", std::move(args), axis->extent + Dim(1));
}

IndexExpr Renamed(const IndexExpr& form, const IndexSymbolPtr& axis, const IndexSymbolPtr& other) {
  IndexExpr renamed(form.constant());
  for (const auto& [key, term] : form.terms()) {
    const IndexSymbolPtr& symbol = term.first;
    if (symbol->key == axis->key) {
      renamed = renamed + IndexExpr::Of(other).Times(term.second);
      continue;
    }
    // Only loads take axes apart from sums.
    if (symbol->kind == IndexSymbol::Kind::kLoad) {
      std::vector<IndexExpr> at;
      for (const IndexExpr& arg : symbol->args) at.push_back(Renamed(arg, axis, other));
      renamed = renamed + IndexExpr::Of(MakeLoad(symbol->tensor, std::move(at))).Times(term.second);
      continue;
    }
    renamed = renamed + IndexExpr::Of(symbol).Times(term.second);
  }
  return renamed;
}

IndexSymbolPtr MakeTruth(std::vector<IndexExpr> conditions) {
  return MakeAtom(IndexSymbol::Kind::kTruth, "truth", std::move(conditions), Dim(2));
}

namespace {

// x = step * head + tail with 0 <= tail < step for a step that divides `divisor`, as far apart as
// that goes.
struct Steps {
  IndexExpr head, tail;
  int64_t step = 1;
};
std::optional<Steps> StepsOf(const IndexExpr& x, int64_t divisor) {
  std::optional<Steps> best;
  for (const auto& [key, term] : x.terms()) {
    const int64_t step = term.second.constant().value_or(0);
    if (step <= 1 || step >= divisor || divisor % step != 0 || (best && best->step >= step)) {
      continue;
    }
    Steps steps;
    steps.step = step;
    for (const auto& [name, part] : x.terms()) {
      const IndexExpr symbol = IndexExpr::Of(part.first);
      const std::optional<Dim> exact = ExactQuotient(part.second, Dim(step));
      if (exact) {
        steps.head = steps.head + symbol.Times(*exact);
      } else {
        steps.tail = steps.tail + symbol.Times(part.second);
      }
    }
    const auto constant = x.constant().constant();
    if (!constant) continue;
    const Dim whole = Dim(*constant).FloorDiv(Dim(step));
    steps.head = steps.head + IndexExpr(whole);
    steps.tail = steps.tail + IndexExpr(Dim(*constant) - whole * Dim(step));
    if (steps.tail.ProvablyIn(Dim(0), Dim(step))) best = steps;
  }
  return best;
}

}  // namespace

namespace {

// The x of a form x - x mod divisor.
std::optional<IndexExpr> WithRemainder(const IndexExpr& form, const Dim& divisor) {
  for (const auto& [key, term] : form.terms()) {
    const IndexSymbolPtr& mod = term.first;
    const bool taken_off = mod->kind == IndexSymbol::Kind::kMod &&
                           ProvablyEqual(mod->divisor, divisor) &&
                           ProvablyEqual(term.second, Dim(-1));
    if (!taken_off) continue;
    if ((form + IndexExpr::Of(mod)).Key() == mod->args[0].Key()) return mod->args[0];
  }
  return std::nullopt;
}

}  // namespace

std::pair<IndexExpr, IndexExpr> DivMod(const IndexExpr& x, const Dim& divisor) {
  if (ProvablyEqual(divisor, Dim(1))) return {x, IndexExpr()};
  IndexExpr quotient;
  IndexExpr rest;
  for (const auto& [key, term] : x.terms()) {
    const IndexExpr symbol = IndexExpr::Of(term.first);
    const std::optional<Dim> exact = ExactQuotient(term.second, divisor);
    if (exact) {
      quotient = quotient + symbol.Times(*exact);
    } else {
      rest = rest + symbol.Times(term.second);
    }
  }
  if (const std::optional<Dim> exact = ExactQuotient(x.constant(), divisor)) {
    quotient = quotient + IndexExpr(*exact);
  } else if (x.constant().constant() && divisor.constant()) {
    const Dim whole = x.constant().FloorDiv(divisor);
    quotient = quotient + IndexExpr(whole);
    rest = rest + IndexExpr(x.constant() - whole * divisor);
  } else {
    rest = rest + IndexExpr(x.constant());
  }
  if (rest.ProvablyIn(Dim(0), divisor)) return {quotient, rest};
  // x - x mod s is s * (x / s), which leaves nothing over.
  if (const std::optional<IndexExpr> whole = WithRemainder(rest, divisor)) {
    return {quotient + DivMod(*whole, divisor).first, IndexExpr()};
  }
  if (const IndexSymbolPtr mod = rest.symbol();
      mod && mod->kind == IndexSymbol::Kind::kMod && ProvablyEqual(mod->divisor, divisor)) {
    return {quotient, rest};
  }
  // (4 m + h) / 8 is m / 2 where h < 4.
  if (const auto number = divisor.constant()) {
    if (const std::optional<Steps> steps = StepsOf(rest, *number)) {
      const auto [whole, left] = DivMod(steps->head, Dim(*number / steps->step));
      return {quotient + whole, left.Times(Dim(steps->step)) + steps->tail};
    }
  }
  return {quotient + IndexExpr::Of(MakeQuotient(rest, divisor)),
          IndexExpr::Of(MakeRemainder(rest, divisor))};
}

}  // namespace pagefuse
