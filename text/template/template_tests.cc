// SPDX-License-Identifier: Apache-2.0
// Tests of chat templates: what stands behind `is`.
#include <map>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/text/template/template_eval.h"
#include "pagefuse/text/template/template_text.h"

namespace pagefuse::chat_template {
namespace {

using Test = bool (*)(const Value&);

bool IsTest(std::string_view name);

// There are letters that have a case, and all have this one.
bool HasOneCase(const std::string& text, std::string (*map)(std::string_view)) {
  return map(text) == text && Lower(text) != Upper(text);
}

const std::map<std::string_view, Test>& Tests() {
  static const auto& tests = *new std::map<std::string_view, Test>{
      {"defined", [](const Value& v) { return !v.is_undefined(); }},
      {"undefined", [](const Value& v) { return v.is_undefined(); }},
      {"none", [](const Value& v) { return v.is_none(); }},
      {"boolean", [](const Value& v) { return v.flag() != nullptr; }},
      {"true", [](const Value& v) { return v.flag() && *v.flag(); }},
      {"false", [](const Value& v) { return v.flag() && !*v.flag(); }},
      {"integer", [](const Value& v) { return v.integer() && !v.flag(); }},
      {"float", [](const Value& v) { return v.is_float(); }},
      {"number", [](const Value& v) { return v.is_number(); }},
      {"string", [](const Value& v) { return v.text() != nullptr; }},
      {"mapping", [](const Value& v) { return v.dict() != nullptr; }},
      {"sequence",
       [](const Value& v) { return v.list() || v.dict() || v.text() || v.is_undefined(); }},
      {"iterable",
       [](const Value& v) { return v.list() || v.dict() || v.text() || v.is_undefined(); }},
      {"callable", [](const Value& v) { return v.macro() || v.function(); }},
      {"odd", [](const Value& v) { return v.integer() && *v.integer() % 2 != 0; }},
      {"even", [](const Value& v) { return v.integer() && *v.integer() % 2 == 0; }},
      {"lower", [](const Value& v) { return v.text() && HasOneCase(v.text()->bytes(), Lower); }},
      {"upper", [](const Value& v) { return v.text() && HasOneCase(v.text()->bytes(), Upper); }},
      {"escaped", [](const Value&) { return false; }},
      {"filter", [](const Value& v) { return v.text() && IsFilter(v.text()->bytes()); }},
      {"test", [](const Value& v) { return v.text() && IsTest(v.text()->bytes()); }},
  };
  return tests;
}

// Tests that compare with an argument, as the operator that they stand for.
std::string_view OperatorOf(std::string_view test) {
  static constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"eq", "=="}, {"equalto", "=="},    {"==", "=="},        {"ne", "!="}, {"!=", "!="},
      {"lt", "<"},  {"lessthan", "<"},    {"<", "<"},          {"le", "<="}, {"<=", "<="},
      {"gt", ">"},  {"greaterthan", ">"}, {">", ">"},          {"ge", ">="}, {">=", ">="},
      {"in", "in"}, {"sameas", "is"},     {"divisibleby", "%"}};
  for (const auto& [name, op] : kNames) {
    if (name == test) return op;
  }
  return "";
}

bool IsTest(std::string_view name) { return Tests().contains(name) || !OperatorOf(name).empty(); }

absl::StatusOr<bool> TestOperator(Evaluator& evaluator, std::string_view op, const Value& a,
                                  const Value& b) {
  if (op == "==" || op == "!=") {
    PF_ASSIGN_OR_RETURN(const bool same, Equal(evaluator.work(), a, b));
    return same == (op == "==");
  }
  if (op == "in") return evaluator.Contains(b, a);
  if (op == "is")
    return a.KindName() == b.KindName() && Equal(evaluator.work(), a, b).value_or(false);
  if (op == "%") {
    PF_ASSIGN_OR_RETURN(const Value rest, evaluator.Binary("%", a, b));
    return !rest.IsTrue();
  }
  PF_ASSIGN_OR_RETURN(const std::optional<int> order, Compare(evaluator.work(), a, b));
  if (!order)
    return absl::InvalidArgumentError(StrCat("no order of ", a.KindName(), " and ", b.KindName()));
  return op == "<" ? *order < 0 : op == "<=" ? *order <= 0 : op == ">" ? *order > 0 : *order >= 0;
}

}  // namespace

absl::StatusOr<bool> ApplyTest(Evaluator& evaluator, const std::string& name, const Value& value,
                               const Arguments& arguments) {
  PF_RETURN_IF_ERROR(evaluator.ChargeRead(value, arguments));
  // These look at every character.
  const bool by_character = name == "lower" || name == "upper";
  if (by_character && value.text()) PF_RETURN_IF_ERROR(evaluator.Charge(value.text()->size()));
  if (const auto found = Tests().find(name); found != Tests().end()) {
    PF_RETURN_IF_ERROR(arguments.Check(0));
    return found->second(value);
  }
  const std::string_view op = OperatorOf(name);
  if (op.empty()) return absl::UnimplementedError(StrCat("the test \"", name, "\" is not known"));
  PF_RETURN_IF_ERROR(arguments.Check(1));
  if (arguments.positional.empty())
    return absl::InvalidArgumentError(StrCat("test ", name, ": expected a value to compare with"));
  return TestOperator(evaluator, op, value, arguments.positional[0]);
}

}  // namespace pagefuse::chat_template
