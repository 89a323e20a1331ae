// Expressions over a match, as conditions and derivations in text have them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "pagefuse/passes/rule.h"

namespace pagefuse {

// What an expression gives: nothing where it is not known.
using ConditionValue = std::variant<std::monostate, Dim, double, std::string, bool>;

std::string ConditionValueText(const ConditionValue& value);

struct ConditionExpression {
  enum class Kind { kLiteral, kAttribute, kCall, kOperator, kNot, kIn, kElse };
  Kind kind = Kind::kLiteral;
  std::string name = {};                           // of the attribute, function or operator
  ConditionValue literal = {};                     // kLiteral
  std::vector<std::string> values = {};            // kCall: the names of values
  std::vector<ConditionExpression> operands = {};  // others; kCall: its number
};

// A function over values of the match: its name, how many values it takes, and whether a number.
struct ConditionFunction {
  std::string_view name;
  int num_values = 1;
  bool takes_number = false;
  ConditionValue (*run)(const std::vector<const Value*>& values, int64_t number) = nullptr;
};
const std::vector<ConditionFunction>& ConditionFunctions();

ConditionValue EvaluateCondition(const ConditionExpression& expression, const Match& match);

// The number of an attribute; nothing for other kinds.
ConditionValue AttributeValue(const Match& match, const std::string& name);

}  // namespace pagefuse
