// SPDX-License-Identifier: Apache-2.0
// Evaluates the expressions over a match that conditions and derivations in text contain.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "pagefuse/passes/rewrite/rule.h"

namespace pagefuse {

// What an expression gives: nothing where it is not known.
using ConditionValue = std::variant<std::monostate, Dim, double, std::string, bool>;

std::string ConditionValueText(const ConditionValue& value);

// A function over values of the match: its name, how many values it takes, and whether a number.
struct ConditionFunction {
  std::string name;
  int num_values = 1;
  bool takes_number = false;
  std::function<ConditionValue(const std::vector<const Value*>& values, int64_t number)> run = {};
};

// All that conditions may call: the built-in functions and those of plug-ins. Who holds one keeps it.
using ConditionFunctions = std::vector<std::shared_ptr<const ConditionFunction>>;
ConditionFunctions KnownConditionFunctions();
// From now on those are known too. For who loads plug-ins, one at a time.
void PublishConditionFunctions(const ConditionFunctions& added);

struct ConditionExpression {
  enum class Kind { kLiteral, kAttribute, kCall, kOperator, kNot, kIn, kElse };
  Kind kind = Kind::kLiteral;
  std::string name = {};                                   // of the attribute, function or operator
  ConditionValue literal = {};                             // kLiteral
  std::shared_ptr<const ConditionFunction> function = {};  // kCall
  std::vector<std::string> values = {};                    // kCall: the names of values
  std::vector<ConditionExpression> operands = {};          // others; kCall: its number
};

ConditionValue EvaluateCondition(const ConditionExpression& expression, const Match& match);

// The number of an attribute; nothing for other kinds.
ConditionValue AttributeValue(const Match& match, const std::string& name);

}  // namespace pagefuse
