// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ir/tensor/shape.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_join.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/tensor/dim_expression.h"

namespace pagefuse {
namespace {

// Longest name of an opaque symbol and most terms of a dim: beyond them a dim is unknown, so that
// repeated multiplication cannot grow without bound.
constexpr size_t kMaxSymbolLength = 1024;
constexpr size_t kMaxTerms = 64;

std::optional<int64_t> AddInts(int64_t a, int64_t b) {
  int64_t sum;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

std::optional<int64_t> MulInts(int64_t a, int64_t b) {
  int64_t product;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

int64_t FloorDivInts(int64_t a, int64_t b) {
  const int64_t quotient = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? quotient - 1 : quotient;
}

// A symbol as it stands inside a larger expression.
std::string Operand(const std::string& symbol) {
  return IsDimIdentifier(symbol) ? symbol : StrCat("(", symbol, ")");
}

// The factors of a symbol that is a product, else the symbol alone.
std::vector<std::string> Factors(const std::string& symbol) {
  std::vector<std::string> factors;
  int depth = 0;
  size_t start = 0;
  for (size_t i = 0; i <= symbol.size(); ++i) {
    if (i == symbol.size() || (symbol[i] == '*' && depth == 0)) {
      factors.push_back(symbol.substr(start, i - start));
      start = i + 1;
      continue;
    }
    depth += symbol[i] == '(' ? 1 : symbol[i] == ')' ? -1 : 0;
  }
  return factors;
}

// The symbol for the product of two symbols; its factors are sorted.
std::string ProductSymbol(const std::string& a, const std::string& b) {
  std::vector<std::string> factors;
  for (const std::string* symbol : {&a, &b}) {
    const std::vector<std::string> parts = Factors(*symbol);
    if (parts.size() == 1) {
      factors.push_back(Operand(*symbol));
    } else {
      factors.insert(factors.end(), parts.begin(), parts.end());
    }
  }
  std::sort(factors.begin(), factors.end());
  return absl::StrJoin(factors, "*");
}

Dim OpaqueSymbol(const std::string& name) {
  return name.size() > kMaxSymbolLength ? Dim::Unknown() : Dim::Symbol(name);
}

// The text of a dim as operand of `//`.
std::string DivOperand(const Dim& dim) {
  const std::string text = dim.ToString();
  const bool plain = dim.is_constant() ? dim.offset() >= 0 : IsDimIdentifier(text);
  return plain ? text : StrCat("(", text, ")");
}

}  // namespace

Dim Dim::Symbol(std::string_view name) {
  Dim dim(0);
  dim.terms_.emplace_back(std::string(name), 1);
  return dim;
}

Dim Dim::Parse(std::string_view text) {
  if (text.empty()) return Unknown();
  std::optional<Dim> parsed = EvaluateDimExpression(text, {});
  return parsed ? *parsed : Symbol(text);
}

std::optional<std::string> Dim::symbol() const {
  if (!known_ || constant_ != 0 || terms_.size() != 1 || terms_[0].second != 1) return std::nullopt;
  return terms_[0].first;
}

Dim Dim::operator+(const Dim& other) const {
  if (!known_ || !other.known_) return Unknown();
  const std::optional<int64_t> constant = AddInts(constant_, other.constant_);
  if (!constant) return Unknown();
  Dim sum(*constant);
  auto a = terms_.begin();
  auto b = other.terms_.begin();
  while (a != terms_.end() || b != other.terms_.end()) {
    if (b == other.terms_.end() || (a != terms_.end() && a->first < b->first)) {
      sum.terms_.push_back(*a++);
    } else if (a == terms_.end() || b->first < a->first) {
      sum.terms_.push_back(*b++);
    } else {
      const std::optional<int64_t> coefficient = AddInts(a->second, b->second);
      if (!coefficient) return Unknown();
      if (*coefficient != 0) sum.terms_.emplace_back(a->first, *coefficient);
      ++a;
      ++b;
    }
  }
  return sum.terms_.size() > kMaxTerms ? Unknown() : sum;
}

Dim Dim::operator-(const Dim& other) const { return *this + other * Dim(-1); }

Dim Dim::operator*(const Dim& other) const {
  if (!known_ || !other.known_) return Unknown();
  if (terms_.size() * other.terms_.size() > kMaxTerms) return Unknown();
  const std::optional<int64_t> constant = MulInts(constant_, other.constant_);
  if (!constant) return Unknown();
  Dim product(*constant);
  auto add = [&product](const std::string& symbol, int64_t a, int64_t b) {
    const std::optional<int64_t> coefficient = MulInts(a, b);
    Dim term = coefficient ? OpaqueSymbol(symbol) : Unknown();
    if (term.known_ && *coefficient == 0) return;
    if (term.known_) term.terms_[0].second = *coefficient;
    product = product + term;
  };
  for (const Term& a : terms_) add(a.first, a.second, other.constant_);
  for (const Term& b : other.terms_) add(b.first, b.second, constant_);
  for (const Term& a : terms_) {
    for (const Term& b : other.terms_) add(ProductSymbol(a.first, b.first), a.second, b.second);
  }
  return product;
}

namespace {

// The whole number that `dim` is times `other`, both of the same symbols.
std::optional<int64_t> MultipleOf(const Dim& dim, const Dim& other) {
  if (dim.terms().empty() || dim.terms().size() != other.terms().size()) return std::nullopt;
  const int64_t divisor = other.terms()[0].second;
  // The least number has no negative.
  if (divisor == -1 && dim.terms()[0].second == std::numeric_limits<int64_t>::min()) {
    return std::nullopt;
  }
  const int64_t multiple = dim.terms()[0].second / divisor;
  return ProvablyEqual(other * Dim(multiple), dim) ? std::optional<int64_t>(multiple)
                                                   : std::nullopt;
}

}  // namespace

Dim Dim::FloorDiv(const Dim& other) const {
  if (!known_ || !other.known_) return Unknown();
  const std::optional<int64_t> divisor = other.constant();
  if (!divisor) {
    if (const std::optional<int64_t> multiple = MultipleOf(*this, other)) return Dim(*multiple);
    return OpaqueSymbol(StrCat(DivOperand(*this), "//", DivOperand(other)));
  }
  if (*divisor == 0 || *divisor == std::numeric_limits<int64_t>::min()) return Unknown();
  if (*divisor < 0) return (*this * Dim(-1)).FloorDiv(Dim(-*divisor));
  // floor((d*k + r) / d) = k + floor(r / d) for integer k: what divides leaves the quotient.
  Dim whole(FloorDivInts(constant_, *divisor));
  const int64_t remainder = constant_ % *divisor;
  Dim rest(remainder < 0 ? remainder + *divisor : remainder);
  for (const Term& term : terms_) {
    if (term.second % *divisor == 0) {
      whole.terms_.emplace_back(term.first, term.second / *divisor);
    } else {
      rest.terms_.push_back(term);
    }
  }
  if (rest.terms_.empty()) return whole;
  return whole + OpaqueSymbol(StrCat(DivOperand(rest), "//", *divisor));
}

Dim Dim::Substitute(const std::map<std::string, Dim>& bindings) const {
  if (!known_) return Unknown();
  Dim result(constant_);
  for (const auto& [symbol, coefficient] : terms_) {
    Dim factor;
    if (auto bound = bindings.find(symbol); bound != bindings.end()) {
      factor = bound->second;
    } else if (IsDimIdentifier(symbol)) {
      factor = Symbol(symbol);
    } else {
      std::optional<Dim> evaluated = EvaluateDimExpression(symbol, bindings);
      factor = evaluated ? *evaluated : Symbol(symbol);
    }
    result = result + factor * Dim(coefficient);
  }
  return result;
}

bool ProvablyEqual(const Dim& a, const Dim& b) { return a.known() && b.known() && a == b; }

std::string Dim::ToString() const {
  if (!known_) return "?";
  if (terms_.empty()) return StrCat(constant_);
  if (const std::optional<std::string> name = symbol()) return *name;
  std::string text;
  // -INT64_MIN has no int64, hence the unsigned magnitude.
  auto magnitude = [](int64_t v) { return v < 0 ? uint64_t{0} - static_cast<uint64_t>(v) : v; };
  auto sign = [&text](int64_t v) {
    return text.empty() ? (v < 0 ? "-" : "") : v < 0 ? " - " : " + ";
  };
  for (const auto& [name, coefficient] : terms_) {
    const uint64_t size = magnitude(coefficient);
    StrAppend(&text, sign(coefficient));
    if (size != 1) StrAppend(&text, size, "*");
    StrAppend(&text, Operand(name));
  }
  if (constant_ != 0) StrAppend(&text, sign(constant_), magnitude(constant_));
  return text;
}

Shape Shape::FromInts(const std::vector<int64_t>& dims) {
  return Shape(std::vector<Dim>(dims.begin(), dims.end()));
}

std::optional<std::vector<int64_t>> Shape::constant() const {
  std::vector<int64_t> dims;
  dims.reserve(dims_.size());
  for (const Dim& dim : dims_) {
    if (!dim.is_constant()) return std::nullopt;
    dims.push_back(*dim.constant());
  }
  return dims;
}

Shape Shape::Substitute(const std::map<std::string, Dim>& bindings) const {
  Shape result;
  for (const Dim& dim : dims_) result.dims_.push_back(dim.Substitute(bindings));
  return result;
}

bool ProvablyEqual(const Shape& a, const Shape& b) {
  return std::equal(a.dims_.begin(), a.dims_.end(), b.dims_.begin(), b.dims_.end(),
                    [](const Dim& x, const Dim& y) { return ProvablyEqual(x, y); });
}

std::string Shape::ToString() const {
  auto append = [](std::string* out, const Dim& dim) { StrAppend(out, dim.ToString()); };
  return StrCat("[", absl::StrJoin(dims_, ", ", append), "]");
}

std::optional<int64_t> CheckedMul(int64_t a, int64_t b) {
  if (a < 0 || b < 0) return std::nullopt;
  return MulInts(a, b);
}

namespace {

// The product of dims, one at a time.
class CountedElements {
 public:
  // False past kMaxElements, or for a negative dim.
  bool Add(int64_t dim) {
    empty_ = empty_ || dim == 0;
    const std::optional<int64_t> product = CheckedMul(count_, dim == 0 ? 1 : dim);
    if (!product || *product > kMaxElements) return false;
    count_ = *product;
    return true;
  }
  int64_t count() const { return empty_ ? 0 : count_; }

 private:
  int64_t count_ = 1;
  bool empty_ = false;
};

}  // namespace

std::optional<int64_t> ElementCount(const std::vector<int64_t>& dims) {
  CountedElements elements;
  for (const int64_t dim : dims) {
    if (!elements.Add(dim)) return std::nullopt;
  }
  return elements.count();
}

bool WithinMaxElements(const Shape& shape) {
  CountedElements elements;
  for (const Dim& dim : shape.dims()) {
    if (dim.is_constant() && !elements.Add(std::max<int64_t>(dim.offset(), 0))) return false;
  }
  return true;
}

std::string DimsToString(const std::vector<int64_t>& dims) {
  return StrCat("[", absl::StrJoin(dims, ", "), "]");
}

}  // namespace pagefuse
