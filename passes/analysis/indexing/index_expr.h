// SPDX-License-Identifier: Apache-2.0
// Integers computed from the indices of an element: sums of axes, table entries, quotients and
// remainders, in one form whatever the form. `table[b, n / 4] * 4 + n mod 4` is the same in
// all.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pagefuse/ir/graph/graph.h"

namespace pagefuse {

class IndexExpr;
struct IndexSymbol;
using IndexSymbolPtr = std::shared_ptr<const IndexSymbol>;

// constant + sum over terms of coefficient * symbol. A value type.
class IndexExpr {
 public:
  using Term = std::pair<IndexSymbolPtr, Dim>;

  IndexExpr() : constant_(0) {}
  explicit IndexExpr(Dim constant) : constant_(std::move(constant)) {}
  explicit IndexExpr(int64_t constant) : constant_(constant) {}
  static IndexExpr Of(IndexSymbolPtr symbol);

  const Dim& constant() const { return constant_; }
  // Terms by the keys of their symbols.
  const std::map<std::string, Term>& terms() const { return terms_; }
  bool is_constant() const { return terms_.empty(); }
  // The number, if this is one.
  std::optional<int64_t> number() const {
    return is_constant() ? constant_.constant() : std::nullopt;
  }
  // The symbol, if this is exactly one.
  IndexSymbolPtr symbol() const;
  // What the form grows by from place to place of an axis, which is one symbol or, of length 1, 0.
  Dim Step(const IndexExpr& axis) const;
  // True if a symbol, or one within its arguments, has that key.
  bool Mentions(const std::string& key) const;

  IndexExpr operator+(const IndexExpr& other) const;
  IndexExpr operator-(const IndexExpr& other) const;
  IndexExpr Times(const Dim& factor) const;

  // Equal for equal forms.
  std::string Key() const;
  // About how long that is: how much work the form is to walk through.
  size_t Length() const;

  // The least and the greatest value; unknown if they do not follow from the symbols' extents.
  Dim Lower() const;
  Dim Upper() const;
  bool ProvablyIn(const Dim& first, const Dim& end) const;  // first <= this < end

 private:
  void Add(const IndexSymbolPtr& symbol, const Dim& coefficient);
  // x - s * (x / s) becomes x mod s, and s * (x / s) + x mod s becomes x.
  void JoinRemainders();
  bool JoinOne();

  Dim constant_;
  std::map<std::string, Term> terms_;
};

struct IndexSymbol {
  enum class Kind {
    kAxis,   // an index
    kLoad,   // an element of an integer or bool tensor (0 and 1)
    kDiv,    // args[0] / divisor, rounded down
    kMod,    // args[0] mod divisor, not negative
    kMax,    // the greater of args
    kMin,    // the lesser of args
    kCount,  // how many values of the axis args[0] make all other args >= 0
    kTruth,  // 1 where all args are >= 0, else 0
  };
  Kind kind = Kind::kAxis;
  std::string key;
  Dim extent;                         // not negative and below it; unknown: any number
  std::vector<Dim> also_extent = {};  // of an axis: lengths that must be the same where it runs
  Value* tensor = nullptr;
  std::vector<IndexExpr> args;
  Dim divisor;
};

IndexSymbolPtr MakeAxis(std::string key, Dim extent, std::vector<Dim> also_extent = {});
// The index of what is repeated along `axis` if it is not `extent` long: that of the axis, or 0.
IndexSymbolPtr MakePart(const IndexSymbolPtr& axis, Dim extent, std::string_view name);
inline bool IsPart(const IndexSymbol& symbol) {
  return symbol.kind == IndexSymbol::Kind::kAxis && !symbol.args.empty();
}
IndexSymbolPtr MakeLoad(Value* tensor, std::vector<IndexExpr> at);
IndexExpr MaxOf(IndexExpr a, IndexExpr b);
IndexExpr MinOf(IndexExpr a, IndexExpr b);
// A bound of a range of the axis' places that may lie outside of them, where it is computed: a range
// that ends behind the last place ends there. What a graph holds or is given stays as it is.
IndexExpr WithinColumns(const IndexExpr& bound, const IndexSymbolPtr& axis);
IndexSymbolPtr MakeCount(const IndexSymbolPtr& axis, std::vector<IndexExpr> conditions);
IndexSymbolPtr MakeTruth(std::vector<IndexExpr> conditions);

// The form with another axis in place of `axis`.
IndexExpr Renamed(const IndexExpr& form, const IndexSymbolPtr& axis, const IndexSymbolPtr& other);

// x / divisor rounded down, and x mod divisor.
std::pair<IndexExpr, IndexExpr> DivMod(const IndexExpr& x, const Dim& divisor);

// True if it follows from symbols being sizes.
bool ProvablyNotNegative(const Dim& dim);

}  // namespace pagefuse
