// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/schema/size_expression.h"

#include <algorithm>
#include <limits>

namespace pagefuse {
namespace {

using Op = SizeExpression::Op;
using Term = SizeExpression::Term;

constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();
constexpr Size kNoSize = {Dim(), /*possible=*/false};

int64_t Add(int64_t a, int64_t b) {
  int64_t sum;
  return __builtin_add_overflow(a, b, &sum) ? kLargest : sum;
}

int64_t Subtract(int64_t a, int64_t b) {
  int64_t difference;
  return __builtin_sub_overflow(a, b, &difference) ? kLargest : difference;
}

int64_t Multiply(int64_t a, int64_t b) {
  int64_t product;
  return __builtin_mul_overflow(a, b, &product) ? kLargest : product;
}

int64_t Power(int64_t base, int64_t exponent) {
  int64_t power = 1;
  for (int64_t i = 0; i < std::min<int64_t>(exponent, 63); ++i) power = Multiply(power, base);
  return power;
}

Size Combine(Op op, int64_t a, int64_t b) {
  switch (op) {
    case Op::kAdd:
      return {Dim(Add(a, b))};
    case Op::kSubtract:
      return {Dim(Subtract(a, b))};
    case Op::kMultiply:
      return {Dim(Multiply(a, b))};
    case Op::kDivide:
      // The least number divided by -1 does not fit.
      if (b == -1) return {Dim(Subtract(0, a))};
      return b == 0 || a % b != 0 ? kNoSize : Size{Dim(a / b)};
    case Op::kModulo:
      if (b == -1) return {Dim(0)};
      return b == 0 ? kNoSize : Size{Dim(a % b)};
    default:
      return b < 0 ? kNoSize : Size{Dim(Power(a, b))};
  }
}

Size Combine(Op op, const Size& a, const Size& b) {
  if (!a.possible || !b.possible) return kNoSize;
  if (a.dim.is_constant() && b.dim.is_constant()) {
    return Combine(op, *a.dim.constant(), *b.dim.constant());
  }
  switch (op) {
    case Op::kAdd:
      return {a.dim + b.dim};
    case Op::kSubtract:
      return {a.dim - b.dim};
    case Op::kMultiply:
      return {a.dim * b.dim};
    case Op::kDivide:
      if (b.dim == Dim(0)) return kNoSize;
      return {a.dim.FloorDiv(b.dim)};
    default:
      return {};
  }
}

// A subtree, and what names stand for.
struct Evaluator {
  const SizeExpression& expression;
  std::span<const Dim> values;

  Size Of(int i) const {
    const Term& term = expression.terms[i];
    if (term.op == Op::kNumber) return {Dim(term.number)};
    if (term.op == Op::kName) return {values[term.name]};
    return Combine(term.op, Of(term.left), Of(term.right));
  }

  int Unknowns(int i) const {
    const Term& term = expression.terms[i];
    if (term.op == Op::kNumber) return 0;
    if (term.op == Op::kName) return values[term.name].known() ? 0 : 1;
    return Unknowns(term.left) + Unknowns(term.right);
  }

  // Of a subtree with one unknown name, undoing one operation a level.
  std::optional<SolvedName> Solve(int i, const Size& target) const {
    const Term& term = expression.terms[i];
    if (term.op == Op::kName) return SolvedName{term.name, target};
    const bool is_left = Unknowns(term.left) == 1;
    const Size other = Of(is_left ? term.right : term.left);
    const int next = is_left ? term.left : term.right;
    switch (term.op) {
      case Op::kAdd:
        return Solve(next, Combine(Op::kSubtract, target, other));
      case Op::kSubtract:
        return Solve(next, is_left ? Combine(Op::kAdd, target, other)
                                   : Combine(Op::kSubtract, other, target));
      case Op::kMultiply:
        if (other.dim == Dim(0)) return std::nullopt;
        return Solve(next, Combine(Op::kDivide, target, other));
      case Op::kDivide:
        if (!is_left) return std::nullopt;
        return Solve(next, Combine(Op::kMultiply, target, other));
      default:
        return std::nullopt;
    }
  }
};

}  // namespace

std::optional<int> SizeExpression::name() const {
  if (terms.size() != 1 || terms[0].op != Op::kName) return std::nullopt;
  return terms[0].name;
}

Size EvaluateSize(const SizeExpression& expression, std::span<const Dim> values) {
  return Evaluator{expression, values}.Of(static_cast<int>(expression.terms.size()) - 1);
}

std::optional<SolvedName> SolveSize(const SizeExpression& expression, std::span<const Dim> values,
                                    const Dim& target) {
  const Evaluator evaluator{expression, values};
  const int whole = static_cast<int>(expression.terms.size()) - 1;
  if (!target.known() || evaluator.Unknowns(whole) != 1) return std::nullopt;
  std::optional<SolvedName> solved = evaluator.Solve(whole, {target});
  if (!solved) return std::nullopt;
  const std::optional<int64_t> number = solved->size.dim.constant();
  if (number && *number < 0) solved->size = kNoSize;
  return solved;
}

}  // namespace pagefuse
