// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/infer/symbolic_arithmetic.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

#include "pagefuse/ops/infer/exact_integers.h"

namespace pagefuse {

namespace {

// Whether a text is one call, and no product or sum of several.
bool IsOneCall(absl::string_view text) {
  int depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    depth += text[i] == '(' ? 1 : text[i] == ')' ? -1 : 0;
    if (text[i] == ')' && depth == 0) return i + 1 == text.size();
  }
  return false;
}

// The n of min(n, ..), as Call writes it: more than that it is not.
std::optional<int64_t> MostOf(absl::string_view symbol) {
  if (!IsOneCall(symbol) || !absl::ConsumePrefix(&symbol, "min(")) return std::nullopt;
  absl::ConsumeSuffix(&symbol, ")");
  int64_t most = 0;
  for (const absl::string_view operand :
       {symbol.substr(0, symbol.find(", ")), symbol.substr(symbol.rfind(", ") + 2)}) {
    if (absl::SimpleAtoi(operand, &most)) return most;
  }
  return std::nullopt;
}

}  // namespace

bool IsNonNegative(const Dim& dim) {
  if (!dim.known()) return false;
  Dim least(dim.offset());
  for (const auto& [symbol, coefficient] : dim.terms()) {
    if (coefficient >= 0) continue;
    const auto most = MostOf(symbol);
    if (!most) return false;
    least = least + Dim(*most) * Dim(coefficient);
  }
  return least.known() && least.offset() >= 0;
}

namespace {

// True for k * (size // k), which is not above `size`.
bool IsWholePartOf(const Dim& dim, const Dim& size) {
  if (!IsNonNegative(size) || !dim.known() || dim.terms().size() != 1) return false;
  const Dim step(dim.terms()[0].second);
  return IsNonNegative(step) && ProvablyEqual(size.FloorDiv(step) * step, dim);
}

bool IsAtMost(const Dim& a, const Dim& b) { return IsNonNegative(b - a) || IsWholePartOf(a, b); }

// What a dim has less than the sum of the rest.
Dim Taken(const Dim& dim) {
  Dim taken(dim.offset() < 0 ? -dim.offset() : 0);
  for (const auto& [symbol, coefficient] : dim.terms()) {
    if (coefficient < 0) taken = taken - Dim::Symbol(symbol) * Dim(coefficient);
  }
  return IsNonNegative(dim) ? Dim(0) : taken;
}

// One symbol named after the call, with the operands in a fixed order.
Dim Call(const char* function, const Dim& a, const Dim& b) {
  if (!IsNonNegative(a) || !IsNonNegative(b)) return Dim();
  std::string x = a.ToString();
  std::string y = b.ToString();
  if (y < x) std::swap(x, y);
  return Dim::Symbol(absl::StrCat(function, "(", x, ", ", y, ")"));
}

}  // namespace

Dim DimMin(const Dim& a, const Dim& b) {
  if (!a.known() || !b.known()) return Dim();
  if (IsAtMost(a, b)) return a;
  if (IsAtMost(b, a)) return b;
  // What is subtracted is added to both for it.
  const Dim taken = Taken(a) + Taken(b);
  const Dim least = Call("min", a + taken, b + taken);
  return least - taken;
}

std::optional<int64_t> NumberInMin(const Dim& dim, const Dim& other) {
  // As Call writes it, in either order.
  const std::string text = dim.ToString();
  for (const size_t at : {text.find('('), text.rfind(' ')}) {
    int64_t number = 0;
    if (at == std::string::npos) return std::nullopt;
    const size_t end = text.find_first_of(",)", at);
    if (!absl::SimpleAtoi(text.substr(at + 1, end - at - 1), &number)) continue;
    if (ProvablyEqual(DimMin(Dim(number), other), dim)) return number;
  }
  return std::nullopt;
}

bool IsOneOrNone(const Dim& dim) {
  if (dim.constant()) return *dim.constant() == 1;
  // As Call writes it.
  const std::string text = dim.ToString();
  return IsOneCall(text) &&
         (text.starts_with("min(1, ") || (text.starts_with("min(") && text.ends_with(", 1)")));
}

Dim DimMax(const Dim& a, const Dim& b) {
  if (!a.known() || !b.known()) return Dim();
  if (IsAtMost(a, b)) return b;
  if (IsAtMost(b, a)) return a;
  const bool sizes = IsNonNegative(a) && IsNonNegative(b);
  return sizes ? Call("max", a, b) : a + b - DimMin(a, b);
}

namespace {

using BinaryFn = Dim (*)(const Dim&, const Dim&);

Dim Add(const Dim& a, const Dim& b) { return a + b; }
Dim Sub(const Dim& a, const Dim& b) { return a - b; }
Dim Mul(const Dim& a, const Dim& b) { return a * b; }

// ONNX's division rounds towards zero, Dim's down: the same where nothing is negative.
Dim Div(const Dim& a, const Dim& b) {
  if (a.is_constant() && b.is_constant()) {
    if (*b.constant() == 0 || *b.constant() == -1) return *b.constant() == 0 ? Dim() : Dim(0) - a;
    return Dim(*a.constant() / *b.constant());
  }
  return IsNonNegative(a) && IsNonNegative(b) && b != Dim(0) ? a.FloorDiv(b) : Dim();
}

Dim Mod(const Dim& a, const Dim& b) {
  if (!IsNonNegative(a) || !b.is_constant() || *b.constant() <= 0) return Dim();
  return a - a.FloorDiv(b) * b;
}

// 1 or 0 where the comparison is decided for all sizes.
Dim Equal(const Dim& a, const Dim& b) {
  if (!a.known() || !b.known()) return Dim();
  const Dim difference = a - b;
  if (difference.is_constant()) return Dim(*difference.constant() == 0 ? 1 : 0);
  const bool never = IsNonNegative(difference - Dim(1)) || IsNonNegative(Dim(-1) - difference);
  return never ? Dim(0) : Dim();
}

BinaryFn FindBinary(const std::string& op) {
  static constexpr std::array<std::pair<std::string_view, BinaryFn>, 8> kTable = {
      {{"Add", Add},
       {"Sub", Sub},
       {"Mul", Mul},
       {"Div", Div},
       {"Mod", Mod},
       {"Min", DimMin},
       {"Max", DimMax},
       {"Equal", Equal}}};
  for (const auto& [name, function] : kTable) {
    if (name == op) return function;
  }
  return nullptr;
}

// Both operands repeated to a common length; empty if they have none.
std::vector<Dim> Combine(const std::vector<Dim>& a, const std::vector<Dim>& b, BinaryFn function) {
  if (a.size() != b.size() && a.size() != 1 && b.size() != 1) return {};
  const size_t size = a.empty() || b.empty() ? 0 : std::max(a.size(), b.size());
  std::vector<Dim> result(size);
  for (size_t i = 0; i < size; ++i) {
    result[i] = function(a[a.size() == 1 ? 0 : i], b[b.size() == 1 ? 0 : i]);
  }
  return result;
}

std::optional<std::vector<Dim>> Unary(const std::string& op, const std::vector<Dim>& a) {
  std::vector<Dim> result;
  if (op == "Neg") {
    for (const Dim& dim : a) result.push_back(Dim(0) - dim);
    return result;
  }
  if (op == "Abs") {
    for (const Dim& dim : a) result.push_back(IsNonNegative(dim) ? dim : Dim());
    return result;
  }
  if (op == "ReduceProd" || op == "ReduceSum") {
    Dim total(op == "ReduceProd" ? 1 : 0);
    for (const Dim& dim : a) total = op == "ReduceProd" ? total * dim : total + dim;
    return std::vector<Dim>{total};
  }
  return std::nullopt;
}

std::optional<std::vector<Dim>> Compute(const ShapeContext& c) {
  const std::string& op = c.node().op_type();
  std::optional<std::vector<Dim>> result = c.input_value(0);
  if (!result) return std::nullopt;
  const BinaryFn binary = FindBinary(op);
  if (binary == nullptr) return Unary(op, *result);
  for (int i = 1; i < c.num_inputs(); ++i) {
    const std::optional<std::vector<Dim>> next = c.input_value(i);
    if (!next) return std::nullopt;
    result = Combine(*result, *next, binary);
  }
  return result;
}

}  // namespace

void PropagateArithmetic(ShapeContext& context) {
  if (!context.node().domain().empty() || context.num_outputs() != 1) return;
  const ShapeContext::Known& output = context.outputs()[0];
  if (output.value || !output.shape || output.shape->rank() > 1) return;
  if (!IsInteger(context.input_type(0))) return;
  std::optional<std::vector<Dim>> value = Compute(context);
  if (!value) return;
  for (Dim& dim : *value) {
    // What wraps around is another number.
    if (!HoldsExactly(context.input_type(0), dim, dim)) dim = Dim();
  }
  const Dim size = output.shape->rank() == 0 ? Dim(1) : (*output.shape)[0];
  if (size == Dim(static_cast<int64_t>(value->size())))
    context.SetOutputValue(0, *std::move(value));
}

}  // namespace pagefuse
