// SPDX-License-Identifier: Apache-2.0
// Expressions of chat templates: what they are worth.
#include <cmath>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/text/template/template_eval.h"
#include "pagefuse/text/template/template_format.h"

namespace pagefuse::chat_template {
namespace {

absl::Status NoOperator(std::string_view op, const Value& a, const Value& b) {
  if (a.undefined()) return Wrong(a.undefined()->what);
  if (b.undefined()) return Wrong(b.undefined()->what);
  return Wrong(StrCat("\"", op, "\": not for ", a.KindName(), " and ", b.KindName()));
}

// Towards minus infinity, as Python divides.
int64_t FloorDivide(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }

absl::StatusOr<Value> IntegerResult(bool overflow, int64_t result) {
  if (overflow) return absl::ResourceExhaustedError("an integer of more than 64 bits");
  return Value(result);
}

absl::StatusOr<Value> IntegerPower(int64_t base, int64_t exponent) {
  int64_t result = 1;
  bool overflow = false;
  for (; exponent > 0 && !overflow; --exponent) {
    overflow = __builtin_mul_overflow(result, base, &result);
    if (base == 1 || base == 0) break;
    if (base == -1) exponent = exponent % 2 == 0 ? 2 : 1;
  }
  return IntegerResult(overflow, result);
}

absl::StatusOr<Value> IntegerArithmetic(std::string_view op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflow = false;
  if (op == "+") overflow = __builtin_add_overflow(a, b, &result);
  if (op == "-") overflow = __builtin_sub_overflow(a, b, &result);
  if (op == "*") overflow = __builtin_mul_overflow(a, b, &result);
  if (op == "+" || op == "-" || op == "*") return IntegerResult(overflow, result);
  if (op == "**" && b >= 0) return IntegerPower(a, b);
  if (op == "**") return Value(std::pow(static_cast<double>(a), static_cast<double>(b)));
  if (b == 0) return Wrong("division by zero");
  if (op == "/") return Value(static_cast<double>(a) / static_cast<double>(b));
  if (b == -1)
    return op == "%" ? Value(int64_t{0}) : IntegerResult(a == INT64_MIN, a == INT64_MIN ? 0 : -a);
  if (op == "//") return Value(FloorDivide(a, b));
  return Value(a - FloorDivide(a, b) * b);
}

absl::StatusOr<Value> FloatArithmetic(std::string_view op, double a, double b) {
  if (op == "+") return Value(a + b);
  if (op == "-") return Value(a - b);
  if (op == "*") return Value(a * b);
  if (op == "**") return Value(std::pow(a, b));
  if (b == 0) return Wrong("division by zero");
  if (op == "/") return Value(a / b);
  if (op == "//") return Value(std::floor(a / b));
  const double rest = std::fmod(a, b);
  return Value(rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest);
}

absl::StatusOr<Value> Repeated(Evaluator& evaluator, const Value& value, int64_t times) {
  times = std::max<int64_t>(times, 0);
  const size_t size = value.text() ? value.text()->size() : value.list()->size();
  if (size > 0 && static_cast<uint64_t>(times) > Work::kMaxBytes / size) {
    return Work::TooLong();
  }
  PF_RETURN_IF_ERROR(evaluator.Charge(size * static_cast<size_t>(times)));
  if (size == 0) return value;
  if (value.text()) {
    MarkedText text;
    for (int64_t i = 0; i < times; ++i) text.Append(*value.text());
    return Value(std::move(text));
  }
  PF_RETURN_IF_ERROR(evaluator.Charge(size * static_cast<size_t>(times) * 8));
  List list;
  for (int64_t i = 0; i < times; ++i)
    list.insert(list.end(), value.list()->begin(), value.list()->end());
  return Value::Of(std::move(list));
}

constexpr size_t kNameBytes = 16;  // what comparing with a name costs, as bytes that are read

// From `text`, where the filters of a block begin.
bool BeginsBlock(const Expr& expr) {
  return expr.kind == Expr::kLiteral && expr.literal.is_undefined();
}

}  // namespace

absl::StatusOr<Value> Evaluator::Binary(std::string_view op, const Value& a, const Value& b) {
  if (op == "~") {
    PF_ASSIGN_OR_RETURN(MarkedText text, a.Print(work_));
    PF_ASSIGN_OR_RETURN(const MarkedText more, b.Print(work_));
    PF_RETURN_IF_ERROR(Charge(text.size() + more.size()));
    text.Append(more);
    return Value(std::move(text));
  }
  if (a.is_number() && b.is_number()) {
    if (a.integer() && b.integer()) return IntegerArithmetic(op, *a.integer(), *b.integer());
    return FloatArithmetic(op, *a.number(), *b.number());
  }
  if (op == "*" && b.integer() && (a.text() || a.list())) return Repeated(*this, a, *b.integer());
  if (op == "*" && a.integer() && (b.text() || b.list())) return Repeated(*this, b, *a.integer());
  if (op == "%" && a.text()) return FormatPercent(*this, *a.text(), b);
  if (op == "+" && a.text() && b.text()) {
    PF_RETURN_IF_ERROR(Charge(a.text()->size() + b.text()->size()));
    MarkedText text = *a.text();
    text.Append(*b.text());
    return Value(std::move(text));
  }
  if (op == "+" && a.list() && b.list() && a.is_tuple() == b.is_tuple()) {
    List list = *a.list();
    list.insert(list.end(), b.list()->begin(), b.list()->end());
    PF_RETURN_IF_ERROR(Charge(list.size() * 64));
    return a.is_tuple() ? Value::Tuple(std::move(list)) : Value::Of(std::move(list));
  }
  return NoOperator(op, a, b);
}

absl::StatusOr<Value> Evaluator::Eval(const Expr& expr) {
  PF_RETURN_IF_ERROR(Charge(0));
  if (depth_ >= kMaxDepth) return absl::ResourceExhaustedError("nested too deeply");
  ++depth_;
  auto value = EvalKind(expr);
  --depth_;
  if (!value.ok()) return Located(value.status(), expr.line);
  return value;
}

absl::StatusOr<Value> Evaluator::EvalKind(const Expr& expr) {
  switch (expr.kind) {
    case Expr::kLiteral:
      return BeginsBlock(expr) && block_text_ ? Value(*block_text_) : expr.literal;
    case Expr::kName:
      return EvalName(expr.name);
    case Expr::kList:
      return EvalList(expr);
    case Expr::kDict:
      return EvalDict(expr);
    case Expr::kAttribute: {
      PF_ASSIGN_OR_RETURN(const Value object, Eval(*expr.parts[0]));
      return Attribute(object, expr.name);
    }
    case Expr::kItem: {
      PF_ASSIGN_OR_RETURN(const Value object, Eval(*expr.parts[0]));
      PF_ASSIGN_OR_RETURN(const Value key, Eval(*expr.parts[1]));
      return Item(object, key);
    }
    case Expr::kSlice:
      return EvalSlice(expr);
    case Expr::kCall:
      return EvalCall(expr);
    case Expr::kFilter:
      return EvalFilter(expr);
    case Expr::kTest:
      return EvalTest(expr);
    case Expr::kUnary:
      return EvalUnary(expr);
    case Expr::kBinary: {
      PF_ASSIGN_OR_RETURN(const Value a, Eval(*expr.parts[0]));
      PF_ASSIGN_OR_RETURN(const Value b, Eval(*expr.parts[1]));
      return Binary(expr.name, a, b);
    }
    case Expr::kCompare:
      return EvalCompare(expr);
    case Expr::kAnd:
    case Expr::kOr: {
      PF_ASSIGN_OR_RETURN(Value value, Eval(*expr.parts[0]));
      return value.IsTrue() == (expr.kind == Expr::kAnd) ? Eval(*expr.parts[1]) : value;
    }
    case Expr::kSpread:
      return Wrong("\"*\" stands only among the arguments of a call");
    case Expr::kConditional: {
      PF_ASSIGN_OR_RETURN(const Value condition, Eval(*expr.parts[1]));
      if (condition.IsTrue()) return Eval(*expr.parts[0]);
      if (expr.parts[2]) return Eval(*expr.parts[2]);
      return Value(Undefined{"an if without else is undefined where it does not hold"});
    }
  }
  return Value();
}

absl::StatusOr<Value> Evaluator::EvalName(const std::string& name) {
  for (const Frame* frame = frame_; frame; frame = frame->around) {
    PF_RETURN_IF_ERROR(work_.ChargeRead(frame->names.size() * kNameBytes));
    if (const Value* value = Lookup(frame->names, name)) return *value;
  }
  Value function = FindFunction(name);
  if (!function.is_undefined()) return function;
  return Value(Undefined{StrCat("\"", name, "\" is undefined")});
}

absl::StatusOr<Value> Evaluator::EvalList(const Expr& expr) {
  List list;
  for (const ExprPtr& part : expr.parts) {
    PF_ASSIGN_OR_RETURN(list.emplace_back(), Eval(*part));
  }
  PF_RETURN_IF_ERROR(Charge(list.size() * 64));
  return expr.name.empty() ? Value::Of(std::move(list)) : Value::Tuple(std::move(list));
}

absl::StatusOr<Value> Evaluator::EvalDict(const Expr& expr) {
  Dict dict;
  for (size_t i = 0; i < expr.parts.size(); i += 2) {
    PF_ASSIGN_OR_RETURN(const Value key, Eval(*expr.parts[i]));
    PF_ASSIGN_OR_RETURN(Value value, Eval(*expr.parts[i + 1]));
    if (!key.text()) return Wrong(StrCat("keys of dicts: expected strings, got ", key.KindName()));
    PF_RETURN_IF_ERROR(Charge(dict.size()));
    std::erase_if(dict,
                  [&](const auto& item) { return item.first.bytes() == key.text()->bytes(); });
    dict.emplace_back(*key.text(), std::move(value));
  }
  return Value::Of(std::move(dict));
}

absl::StatusOr<Value> Evaluator::EvalSlice(const Expr& expr) {
  PF_ASSIGN_OR_RETURN(const Value object, Eval(*expr.parts[0]));
  std::array<std::optional<int64_t>, 3> bounds;
  for (int i = 0; i < 3; ++i) {
    if (!expr.parts[i + 1]) continue;
    PF_ASSIGN_OR_RETURN(const Value bound, Eval(*expr.parts[i + 1]));
    if (bound.is_none()) continue;
    bounds[i] = bound.integer();
    if (!bounds[i]) return Wrong(StrCat("a slice: expected an integer, got ", bound.KindName()));
  }
  return Slice(*this, object, bounds);
}

// Those behind parts[0], and those with names.
absl::StatusOr<Arguments> Evaluator::EvalArguments(const Expr& expr) {
  Arguments arguments;
  for (size_t i = 1; i < expr.parts.size(); ++i) {
    const Expr& part = *expr.parts[i];
    const bool spread = part.kind == Expr::kSpread;
    PF_ASSIGN_OR_RETURN(Value value, Eval(spread ? *part.parts[0] : part));
    if (!spread) {
      arguments.positional.push_back(std::move(value));
      continue;
    }
    PF_ASSIGN_OR_RETURN(const List items, Items(value));
    arguments.positional.insert(arguments.positional.end(), items.begin(), items.end());
  }
  for (const auto& [name, part] : expr.named) {
    PF_ASSIGN_OR_RETURN(Value value, Eval(*part));
    if (!name.empty()) {
      arguments.named.emplace_back(name, std::move(value));
      continue;
    }
    if (!value.dict()) return Wrong(StrCat("**: expected a dict, got ", value.KindName()));
    for (const auto& [key, item] : *value.dict()) {
      PF_RETURN_IF_ERROR(Charge(key.size()));
      arguments.named.emplace_back(key.bytes(), item);
    }
  }
  return arguments;
}

absl::StatusOr<Value> Evaluator::EvalCall(const Expr& expr) {
  PF_ASSIGN_OR_RETURN(const Value callee, Eval(*expr.parts[0]));
  PF_ASSIGN_OR_RETURN(const Arguments arguments, EvalArguments(expr));
  return Call(callee, arguments);
}

absl::StatusOr<Value> Evaluator::EvalFilter(const Expr& expr) {
  PF_ASSIGN_OR_RETURN(const Value value, Eval(*expr.parts[0]));
  PF_ASSIGN_OR_RETURN(const Arguments arguments, EvalArguments(expr));
  return ApplyFilter(*this, expr.name, value, arguments);
}

absl::StatusOr<Value> Evaluator::EvalTest(const Expr& expr) {
  PF_ASSIGN_OR_RETURN(const Value value, Eval(*expr.parts[0]));
  PF_ASSIGN_OR_RETURN(const Arguments arguments, EvalArguments(expr));
  PF_ASSIGN_OR_RETURN(const bool holds, ApplyTest(*this, expr.name, value, arguments));
  return Value(holds);
}

absl::StatusOr<Value> Evaluator::EvalUnary(const Expr& expr) {
  PF_ASSIGN_OR_RETURN(const Value value, Eval(*expr.parts[0]));
  if (expr.name == "not") return Value(!value.IsTrue());
  if (!value.is_number()) return NoOperator(expr.name, value, value);
  if (expr.name == "+") return value.is_float() ? value : Value(*value.integer());
  return value.is_float() ? Value(-*value.number()) : Binary("-", Value(int64_t{0}), value);
}

absl::StatusOr<Value> Evaluator::EvalCompare(const Expr& expr) {
  PF_ASSIGN_OR_RETURN(Value left, Eval(*expr.parts[0]));
  for (size_t i = 0; i < expr.operators.size(); ++i) {
    const std::string& op = expr.operators[i];
    PF_ASSIGN_OR_RETURN(Value right, Eval(*expr.parts[i + 1]));
    bool holds = false;
    if (op == "in" || op == "not in") {
      PF_ASSIGN_OR_RETURN(holds, Contains(right, left));
      holds = holds == (op == "in");
    } else if (op == "==" || op == "!=") {
      PF_ASSIGN_OR_RETURN(const bool same, Equal(work_, left, right));
      holds = same == (op == "==");
    } else {
      PF_ASSIGN_OR_RETURN(const std::optional<int> order, Compare(work_, left, right));
      if (!order) return NoOperator(op, left, right);
      holds = op == "<"    ? *order < 0
              : op == "<=" ? *order <= 0
              : op == ">"  ? *order > 0
                           : *order >= 0;
    }
    if (!holds) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

}  // namespace pagefuse::chat_template
