#include "pagefuse/passes/words/index_form.h"

#include <algorithm>

#include "pagefuse/ir/str_cat.h"

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

std::string KeysOf(const std::vector<IndexForm>& forms) {
  std::string keys;
  for (const IndexForm& form : forms) StrAppend(&keys, keys.empty() ? "" : ", ", form.Key());
  return keys;
}

AtomPtr MakeAtom(IndexAtom::Kind kind, std::string_view name, std::vector<IndexForm> args,
                 Dim extent = Dim::Unknown(), Dim divisor = Dim::Unknown()) {
  auto atom = std::make_shared<IndexAtom>();
  atom->kind = kind;
  atom->key =
      StrCat(name, "(", KeysOf(args), divisor.known() ? StrCat("; ", divisor.ToString()) : "", ")");
  atom->args = std::move(args);
  atom->extent = std::move(extent);
  atom->divisor = std::move(divisor);
  return atom;
}

AtomPtr MakeQuotient(const IndexForm& x, const Dim& divisor) {
  const Dim upper = x.Upper();
  const bool bounded = ProvablyNotNegative(x.Lower()) && upper.known();
  Dim extent;
  if (bounded) {
    const std::optional<Dim> exact = ExactQuotient(upper + Dim(1), divisor);
    extent = exact ? *exact : upper.FloorDiv(divisor) + Dim(1);
  }
  return MakeAtom(IndexAtom::Kind::kDiv, "div", {x}, extent, divisor);
}

AtomPtr MakeRemainder(const IndexForm& x, const Dim& divisor) {
  return MakeAtom(IndexAtom::Kind::kMod, "mod", {x}, divisor, divisor);
}

IndexForm Extreme(IndexAtom::Kind kind, std::string_view name, IndexForm a, IndexForm b) {
  if (b.Key() < a.Key()) std::swap(a, b);
  if (a.Key() == b.Key()) return a;
  return IndexForm::Of(MakeAtom(kind, name, {a, b}));
}

}  // namespace

bool ProvablyNotNegative(const Dim& dim) {
  if (!dim.known() || dim.offset() < 0) return false;
  return std::all_of(dim.terms().begin(), dim.terms().end(),
                     [](const Dim::Term& term) { return term.second >= 0; });
}

IndexForm IndexForm::Of(AtomPtr atom) {
  IndexForm form;
  form.Add(atom, Dim(1));
  return form;
}

AtomPtr IndexForm::atom() const {
  if (terms_.size() != 1 || !IsZero(constant_)) return nullptr;
  const Term& term = terms_.begin()->second;
  return ProvablyEqual(term.second, Dim(1)) ? term.first : nullptr;
}

bool IndexForm::Mentions(const std::string& key) const {
  return std::any_of(terms_.begin(), terms_.end(), [&](const auto& entry) {
    const IndexAtom& atom = *entry.second.first;
    return atom.key == key || std::any_of(atom.args.begin(), atom.args.end(),
                                          [&](const IndexForm& arg) { return arg.Mentions(key); });
  });
}

void IndexForm::Add(const AtomPtr& atom, const Dim& coefficient) {
  const auto [it, inserted] = terms_.emplace(atom->key, Term{atom, coefficient});
  if (!inserted) it->second.second = it->second.second + coefficient;
  if (IsZero(it->second.second)) terms_.erase(it);
}

IndexForm IndexForm::operator+(const IndexForm& other) const {
  IndexForm sum = *this;
  sum.constant_ = sum.constant_ + other.constant_;
  for (const auto& [key, term] : other.terms_) sum.Add(term.first, term.second);
  sum.JoinRemainders();
  return sum;
}

IndexForm IndexForm::operator-(const IndexForm& other) const {
  return *this + other.Times(Dim(-1));
}

IndexForm IndexForm::Times(const Dim& factor) const {
  IndexForm product(constant_ * factor);
  for (const auto& [key, term] : terms_) product.Add(term.first, term.second * factor);
  return product;
}

void IndexForm::JoinRemainders() {
  while (JoinOne()) {
  }
}

bool IndexForm::JoinOne() {
  for (const auto& [key, term] : terms_) {
    const AtomPtr quotient = term.first;
    if (quotient->kind != IndexAtom::Kind::kDiv) continue;
    const Dim coefficient = term.second;
    const IndexForm& x = quotient->args[0];
    const AtomPtr remainder = MakeRemainder(x, quotient->divisor);
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
                       std::all_of(x.terms_.begin(), x.terms_.end(), [&](const auto& entry) {
                         const auto mine = terms_.find(entry.first);
                         return mine != terms_.end() &&
                                ProvablyEqual(mine->second.second, entry.second.second * *factor);
                       });
    if (!whole) continue;
    IndexForm rest = *this;
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

std::string IndexForm::Key() const {
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

Dim IndexForm::Lower() const {
  Dim lower = constant_;
  for (const auto& [key, term] : terms_) {
    if (!term.first->extent.known()) return Dim::Unknown();
    if (ProvablyNotNegative(term.second)) continue;
    if (!ProvablyNotNegative(term.second * Dim(-1))) return Dim::Unknown();
    lower = lower + term.second * (term.first->extent - Dim(1));
  }
  return lower;
}

Dim IndexForm::Upper() const { return Times(Dim(-1)).Lower() * Dim(-1); }

bool IndexForm::ProvablyIn(const Dim& first, const Dim& end) const {
  return ProvablyNotNegative(Lower() - first) && ProvablyNotNegative(end - Upper() - Dim(1));
}

AtomPtr MakeAxis(std::string key, Dim extent, std::vector<Dim> also_extent) {
  auto atom = std::make_shared<IndexAtom>();
  atom->key = std::move(key);
  atom->extent = std::move(extent);
  atom->also_extent = std::move(also_extent);
  return atom;
}

AtomPtr MakeLoad(Value* tensor, std::vector<IndexForm> at) {
  auto atom = std::make_shared<IndexAtom>();
  atom->kind = IndexAtom::Kind::kLoad;
  atom->key = StrCat("\"", tensor->name(), "\"[", KeysOf(at), "]");
  atom->tensor = tensor;
  atom->args = std::move(at);
  if (tensor->dtype() == DataType::kBool) atom->extent = Dim(2);
  if (tensor->dtype() == DataType::kUint8) atom->extent = Dim(256);
  return atom;
}

IndexForm MaxOf(IndexForm a, IndexForm b) {
  if (ProvablyNotNegative((a - b).Lower())) return a;
  if (ProvablyNotNegative((b - a).Lower())) return b;
  return Extreme(IndexAtom::Kind::kMax, "max", std::move(a), std::move(b));
}

IndexForm MinOf(IndexForm a, IndexForm b) {
  if (ProvablyNotNegative((a - b).Lower())) return b;
  if (ProvablyNotNegative((b - a).Lower())) return a;
  return Extreme(IndexAtom::Kind::kMin, "min", std::move(a), std::move(b));
}

IndexForm WithinColumns(const IndexForm& bound, const AtomPtr& axis) {
  if (bound.atom() || bound.is_constant() || !axis->extent.known()) return bound;
  return MaxOf(MinOf(bound, IndexForm(axis->extent)), IndexForm(0));
}

AtomPtr MakeCount(const AtomPtr& axis, std::vector<IndexForm> conditions) {
  std::vector<IndexForm> args = {IndexForm::Of(axis)};
  std::sort(conditions.begin(), conditions.end(),
            [](const IndexForm& a, const IndexForm& b) { return a.Key() < b.Key(); });
  args.insert(args.end(), conditions.begin(), conditions.end());
  return MakeAtom(IndexAtom::Kind::kCount, "count", std::move(args), axis->extent + Dim(1));
}

IndexForm Renamed(const IndexForm& form, const AtomPtr& axis, const AtomPtr& other) {
  IndexForm renamed(form.constant());
  for (const auto& [key, term] : form.terms()) {
    const AtomPtr& atom = term.first;
    if (atom->key == axis->key) {
      renamed = renamed + IndexForm::Of(other).Times(term.second);
      continue;
    }
    // Only loads take axes apart from sums.
    if (atom->kind == IndexAtom::Kind::kLoad) {
      std::vector<IndexForm> at;
      for (const IndexForm& arg : atom->args) at.push_back(Renamed(arg, axis, other));
      renamed = renamed + IndexForm::Of(MakeLoad(atom->tensor, std::move(at))).Times(term.second);
      continue;
    }
    renamed = renamed + IndexForm::Of(atom).Times(term.second);
  }
  return renamed;
}

AtomPtr MakeTruth(std::vector<IndexForm> conditions) {
  return MakeAtom(IndexAtom::Kind::kTruth, "truth", std::move(conditions), Dim(2));
}

namespace {

// x = step * head + tail with 0 <= tail < step for a step that divides `divisor`, as far apart as
// that goes.
struct Steps {
  IndexForm head, tail;
  int64_t step = 1;
};
std::optional<Steps> StepsOf(const IndexForm& x, int64_t divisor) {
  std::optional<Steps> best;
  for (const auto& [key, term] : x.terms()) {
    const int64_t step = term.second.constant().value_or(0);
    if (step <= 1 || step >= divisor || divisor % step != 0 || (best && best->step >= step)) {
      continue;
    }
    Steps steps;
    steps.step = step;
    for (const auto& [name, part] : x.terms()) {
      const IndexForm atom = IndexForm::Of(part.first);
      const std::optional<Dim> exact = ExactQuotient(part.second, Dim(step));
      if (exact) {
        steps.head = steps.head + atom.Times(*exact);
      } else {
        steps.tail = steps.tail + atom.Times(part.second);
      }
    }
    const auto constant = x.constant().constant();
    if (!constant) continue;
    const Dim whole = Dim(*constant).FloorDiv(Dim(step));
    steps.head = steps.head + IndexForm(whole);
    steps.tail = steps.tail + IndexForm(Dim(*constant) - whole * Dim(step));
    if (steps.tail.ProvablyIn(Dim(0), Dim(step))) best = steps;
  }
  return best;
}

}  // namespace

namespace {

// The x of a form x - x mod divisor.
std::optional<IndexForm> WithRemainder(const IndexForm& form, const Dim& divisor) {
  for (const auto& [key, term] : form.terms()) {
    const AtomPtr& mod = term.first;
    const bool taken_off = mod->kind == IndexAtom::Kind::kMod &&
                           ProvablyEqual(mod->divisor, divisor) &&
                           ProvablyEqual(term.second, Dim(-1));
    if (!taken_off) continue;
    if ((form + IndexForm::Of(mod)).Key() == mod->args[0].Key()) return mod->args[0];
  }
  return std::nullopt;
}

}  // namespace

std::pair<IndexForm, IndexForm> DivMod(const IndexForm& x, const Dim& divisor) {
  if (ProvablyEqual(divisor, Dim(1))) return {x, IndexForm()};
  IndexForm quotient;
  IndexForm rest;
  for (const auto& [key, term] : x.terms()) {
    const IndexForm atom = IndexForm::Of(term.first);
    const std::optional<Dim> exact = ExactQuotient(term.second, divisor);
    if (exact) {
      quotient = quotient + atom.Times(*exact);
    } else {
      rest = rest + atom.Times(term.second);
    }
  }
  if (const std::optional<Dim> exact = ExactQuotient(x.constant(), divisor)) {
    quotient = quotient + IndexForm(*exact);
  } else if (x.constant().constant() && divisor.constant()) {
    const Dim whole = x.constant().FloorDiv(divisor);
    quotient = quotient + IndexForm(whole);
    rest = rest + IndexForm(x.constant() - whole * divisor);
  } else {
    rest = rest + IndexForm(x.constant());
  }
  if (rest.ProvablyIn(Dim(0), divisor)) return {quotient, rest};
  // x - x mod s is s * (x / s), which leaves nothing over.
  if (const std::optional<IndexForm> whole = WithRemainder(rest, divisor)) {
    return {quotient + DivMod(*whole, divisor).first, IndexForm()};
  }
  if (const AtomPtr mod = rest.atom();
      mod && mod->kind == IndexAtom::Kind::kMod && ProvablyEqual(mod->divisor, divisor)) {
    return {quotient, rest};
  }
  // (4 m + h) / 8 is m / 2 where h < 4.
  if (const auto number = divisor.constant()) {
    if (const std::optional<Steps> steps = StepsOf(rest, *number)) {
      const auto [whole, left] = DivMod(steps->head, Dim(*number / steps->step));
      return {quotient + whole, left.Times(Dim(steps->step)) + steps->tail};
    }
  }
  return {quotient + IndexForm::Of(MakeQuotient(rest, divisor)),
          IndexForm::Of(MakeRemainder(rest, divisor))};
}

}  // namespace pagefuse
