// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/rewrite/condition_value.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <utility>

#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/edit/constants.h"
#include "pagefuse/passes/edit/graph_edit.h"

namespace pagefuse {
namespace {

using Values = std::vector<const Value*>;

std::optional<double> AsDouble(const ConditionValue& value) {
  if (const auto* number = std::get_if<double>(&value)) return *number;
  const auto* dim = std::get_if<Dim>(&value);
  if (dim == nullptr || !dim->is_constant()) return std::nullopt;
  return static_cast<double>(*dim->constant());
}

ConditionValue RankOf(const Values& values, int64_t) {
  if (!values[0]->shape()) return {};
  return Dim(values[0]->shape()->rank());
}

ConditionValue DimOf(const Values& values, int64_t axis) {
  const auto& shape = values[0]->shape();
  if (!shape) return {};
  const int64_t normal = NormalAxis(axis, shape->rank());
  if (normal < 0 || normal >= shape->rank() || !(*shape)[static_cast<int>(normal)].known()) {
    return {};
  }
  return (*shape)[static_cast<int>(normal)];
}

ConditionValue SizeOf(const Values& values, int64_t) {
  if (!values[0]->shape()) return {};
  Dim size(1);
  for (const Dim& dim : values[0]->shape()->dims()) size = size * dim;
  if (!size.known()) return {};
  return size;
}

ConditionValue NumberOf(const Values& values, int64_t) {
  const Tensor* tensor = ConstantOf(values[0]);
  const auto number = tensor == nullptr ? std::nullopt : ScalarNumber(*tensor);
  if (!number) return {};
  if (IsFloatingPoint(tensor->dtype())) return *number;
  return Dim(static_cast<int64_t>(*number));
}

ConditionValue UsesOf(const Values& values, int64_t) {
  return Dim(static_cast<int64_t>(values[0]->uses().size()));
}

ConditionValue TypeOf(const Values& values, int64_t) {
  if (values[0]->dtype() == DataType::kUndefined) return {};
  return std::string(DataTypeName(values[0]->dtype()));
}

ConditionValue IsConstant(const Values& values, int64_t) {
  return ConstantOf(values[0]) != nullptr;
}

ConditionValue IsScalar(const Values& values, int64_t) {
  return pagefuse::NumberOf(values[0]).has_value();
}

ConditionValue IsFloat(const Values& values, int64_t) {
  return IsFloatingPoint(values[0]->dtype());
}

ConditionValue IsOutput(const Values& values, int64_t) { return values[0]->is_output(); }

ConditionValue SameShapes(const Values& values, int64_t) {
  const auto& a = values[0]->shape();
  const auto& b = values[1]->shape();
  return a && b && ProvablyEqual(*a, *b);
}

ConditionValue SameRows(const Values& values, int64_t) {
  const auto& a = values[0]->shape();
  const auto& b = values[1]->shape();
  bool same = a && b && a->rank() == b->rank();
  for (int axis = 1; same && axis < a->rank(); ++axis) same = ProvablyEqual((*a)[axis], (*b)[axis]);
  return same;
}

ConditionValue SameTypes(const Values& values, int64_t) {
  return values[0]->dtype() == values[1]->dtype();
}

ConditionValue Call(const ConditionExpression& call, const Match& match) {
  Values values;
  for (const std::string& name : call.values) values.push_back(match.value(name));
  const bool all =
      std::ranges::none_of(values, [](const Value* value) { return value == nullptr; });
  if (call.name == "present") return all;
  if (!all) return {};
  int64_t number = 0;
  if (!call.operands.empty()) {
    const auto operand = AsDouble(EvaluateCondition(call.operands[0], match));
    if (!operand) return {};
    number = static_cast<int64_t>(*operand);
  }
  return call.function->run(values, number);
}

ConditionValue Known(Dim dim) {
  if (!dim.known()) return {};
  return dim;
}

bool IsZero(const Dim& dim) { return dim.constant() == 0; }

ConditionValue OnDims(const std::string& op, const Dim& a, const Dim& b) {
  if (op == "+") return Known(a + b);
  if (op == "-") return Known(a - b);
  if (op == "*") return Known(a * b);
  if (IsZero(b)) return {};
  if (op == "//") return Known(a.FloorDiv(b));
  if (op == "%") return Known(a - a.FloorDiv(b) * b);
  if (op != "/" || !a.is_constant() || !b.is_constant()) return {};
  return static_cast<double>(*a.constant()) / static_cast<double>(*b.constant());
}

ConditionValue OnDoubles(const std::string& op, double a, double b) {
  if (op == "+") return a + b;
  if (op == "-") return a - b;
  if (op == "*") return a * b;
  if (b == 0) return {};
  if (op == "/") return a / b;
  if (op == "//") return std::floor(a / b);
  return a - std::floor(a / b) * b;
}

// -1, 0 or 1; nothing where neither is proved.
std::optional<int> Order(const ConditionValue& a, const ConditionValue& b) {
  const auto* x = std::get_if<Dim>(&a);
  const auto* y = std::get_if<Dim>(&b);
  if (x != nullptr && y != nullptr) {
    const auto difference = (*x - *y).constant();
    if (!difference) return std::nullopt;
    return *difference < 0 ? -1 : *difference > 0 ? 1 : 0;
  }
  const auto p = AsDouble(a), q = AsDouble(b);
  if (!p || !q) return std::nullopt;
  if (NumbersEqual(*p, *q)) return 0;
  return *p < *q ? -1 : 1;
}

ConditionValue Compare(const std::string& op, const ConditionValue& a, const ConditionValue& b) {
  const auto* text = std::get_if<std::string>(&a);
  const auto* other = std::get_if<std::string>(&b);
  if (text != nullptr && other != nullptr && (op == "==" || op == "!=")) {
    return (*text == *other) == (op == "==");
  }
  const auto order = Order(a, b);
  if (!order) return {};
  if (op == "==") return *order == 0;
  if (op == "!=") return *order != 0;
  if (op == "<") return *order < 0;
  if (op == "<=") return *order <= 0;
  return op == ">" ? *order > 0 : *order >= 0;
}

bool IsComparison(const std::string& op) {
  return op == "==" || op == "!=" || op == "<" || op == "<=" || op == ">" || op == ">=";
}

ConditionValue Operate(const ConditionExpression& expression, const Match& match) {
  const ConditionValue a = EvaluateCondition(expression.operands[0], match);
  const ConditionValue b = EvaluateCondition(expression.operands[1], match);
  if (IsComparison(expression.name)) return Compare(expression.name, a, b);
  const auto* x = std::get_if<Dim>(&a);
  const auto* y = std::get_if<Dim>(&b);
  if (x != nullptr && y != nullptr) return OnDims(expression.name, *x, *y);
  const auto p = AsDouble(a), q = AsDouble(b);
  if (!p || !q) return {};
  return OnDoubles(expression.name, *p, *q);
}

ConditionValue In(const ConditionExpression& expression, const Match& match) {
  const ConditionValue value = EvaluateCondition(expression.operands[0], match);
  if (std::holds_alternative<std::monostate>(value)) return {};
  for (size_t i = 1; i < expression.operands.size(); ++i) {
    const ConditionValue same =
        Compare("==", value, EvaluateCondition(expression.operands[i], match));
    if (std::holds_alternative<bool>(same) && std::get<bool>(same)) return true;
  }
  return false;
}

ConditionFunctions BuiltInFunctions() {
  ConditionFunctions functions;
  for (ConditionFunction function : {ConditionFunction{"rank", 1, false, RankOf},
                                     {"dim", 1, true, DimOf},
                                     {"size", 1, false, SizeOf},
                                     {"value", 1, false, NumberOf},
                                     {"uses", 1, false, UsesOf},
                                     {"type", 1, false, TypeOf},
                                     {"constant", 1, false, IsConstant},
                                     {"scalar", 1, false, IsScalar},
                                     {"float", 1, false, IsFloat},
                                     {"output", 1, false, IsOutput},
                                     {"present", 1, false, nullptr},
                                     {"same_shape", 2, false, SameShapes},
                                     {"same_type", 2, false, SameTypes},
                                     {"same_rows", 2, false, SameRows}}) {
    functions.push_back(std::make_shared<const ConditionFunction>(std::move(function)));
  }
  return functions;
}

std::mutex& FunctionsLock() {
  static auto* lock = new std::mutex;
  return *lock;
}

ConditionFunctions& AllFunctions() {
  static auto* functions = new ConditionFunctions(BuiltInFunctions());
  return *functions;
}

}  // namespace

ConditionFunctions KnownConditionFunctions() {
  const std::lock_guard lock(FunctionsLock());
  return AllFunctions();
}

void PublishConditionFunctions(const ConditionFunctions& added) {
  const std::lock_guard lock(FunctionsLock());
  AllFunctions().insert(AllFunctions().end(), added.begin(), added.end());
}

ConditionValue AttributeValue(const Match& match, const std::string& name) {
  const auto found = match.attributes.find(name);
  if (found == match.attributes.end()) return {};
  const auto& value = found->second.value;
  if (const auto* integer = std::get_if<int64_t>(&value)) return Dim(*integer);
  if (const auto* real = std::get_if<float>(&value)) return static_cast<double>(*real);
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  if (const auto* tensor = std::get_if<Tensor>(&value)) {
    if (const auto number = ScalarNumber(*tensor)) return *number;
  }
  if (const auto* list = std::get_if<std::vector<int64_t>>(&value)) {
    if (list->size() == 1) return Dim(list->front());
  }
  return {};
}

ConditionValue EvaluateCondition(const ConditionExpression& expression, const Match& match) {
  using Kind = ConditionExpression::Kind;
  switch (expression.kind) {
    case Kind::kLiteral:
      return expression.literal;
    case Kind::kAttribute:
      return AttributeValue(match, expression.name);
    case Kind::kCall:
      return Call(expression, match);
    case Kind::kOperator:
      return Operate(expression, match);
    case Kind::kIn:
      return In(expression, match);
    case Kind::kElse: {
      ConditionValue value = EvaluateCondition(expression.operands[0], match);
      if (!std::holds_alternative<std::monostate>(value)) return value;
      return EvaluateCondition(expression.operands[1], match);
    }
    case Kind::kNot: {
      const ConditionValue value = EvaluateCondition(expression.operands[0], match);
      if (const auto* holds = std::get_if<bool>(&value)) return !*holds;
      return {};
    }
  }
  return {};
}

std::string ConditionValueText(const ConditionValue& value) {
  if (const auto* dim = std::get_if<Dim>(&value)) return dim->ToString();
  if (const auto* number = std::get_if<double>(&value)) return StrCat(*number);
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  if (const auto* holds = std::get_if<bool>(&value)) return *holds ? "yes" : "no";
  return "?";
}

}  // namespace pagefuse
