// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/analysis/indexing/element_cases.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>

#include "pagefuse/passes/analysis/indexing/conditions.h"
#include "pagefuse/passes/analysis/indexing/constant_forms.h"
#include "pagefuse/passes/edit/ports.h"

namespace pagefuse {
namespace {

using Cases = std::vector<NumberCase>;
using Function = double (*)(double, double);
constexpr size_t kMostCases = 16;

// Functions of one number, or two; nullptr for other ops.
Function FunctionOf(const Node& node) {
  static const auto& functions = *new std::map<std::string_view, Function>{
      {"Abs", [](double x, double) { return std::abs(x); }},
      {"Neg", [](double x, double) { return -x; }},
      {"Log", [](double x, double) { return std::log(x); }},
      {"IsInf", [](double x, double) { return std::isinf(x) ? 1.0 : 0.0; }},
      {"Cast", [](double x, double) { return x; }},
      {"Add", [](double x, double y) { return x + y; }},
      {"Sub", [](double x, double y) { return x - y; }},
      {"Mul", [](double x, double y) { return x * y; }},
      {"Div", [](double x, double y) { return x / y; }},
      {"Max", [](double x, double y) { return std::max(x, y); }},
      {"Min", [](double x, double y) { return std::min(x, y); }},
      {"Equal", [](double x, double y) { return x == y ? 1.0 : 0.0; }},
      {"Less", [](double x, double y) { return x < y ? 1.0 : 0.0; }},
      {"LessOrEqual", [](double x, double y) { return x <= y ? 1.0 : 0.0; }},
      {"Greater", [](double x, double y) { return x > y ? 1.0 : 0.0; }},
      {"GreaterOrEqual", [](double x, double y) { return x >= y ? 1.0 : 0.0; }},
  };
  const auto found = functions.find(node.op_type());
  const bool has = found != functions.end() && node.domain().empty() && node.num_inputs() <= 2;
  // Which infinities are asked for, and how whole numbers are divided.
  const bool plain = has && (!node.Is("IsInf") || node.attributes().empty()) &&
                     (!node.Is("Div") || IsFloatingPoint(node.output(0)->dtype()));
  return plain ? found->second : nullptr;
}

class CaseReader {
 public:
  CaseReader(IndexingAnalysis& reader, bool inputs) : reader_(reader), inputs_(inputs) {}

  std::optional<Cases> Read(const Element& unresolved) {
    const Element element = reader_.Source(unresolved);
    if (const auto number = reader_.Number(element)) return Cases{{{}, *number}};
    if (reader_.GaveUp()) return std::nullopt;
    if (!reader_.IsZeroOrOne(element, inputs_)) return Computed(element);
    const auto is_one = reader_.ReadConditions(element), is_zero = reader_.ReadNegation(element);
    if (!is_one.ok() || !is_zero.ok()) return std::nullopt;
    return Cases{{*is_one, 1}, {*is_zero, 0}};
  }

  std::optional<Cases> Computed(const Element& element) {
    const Node* node = element.producer();
    if (!node) return std::nullopt;
    if (node->Is("Where")) return Chosen(element);
    const Function function = FunctionOf(*node);
    if (!function) return std::nullopt;
    const auto first = Read(reader_.Operand(element, 0));
    const auto second = first && node->num_inputs() == 2 ? Read(reader_.Operand(element, 1))
                                                         : std::optional(Cases{{{}, 0}});
    if (!first || !second) return std::nullopt;
    Cases cases;
    for (const NumberCase& x : *first) {
      for (const NumberCase& y : *second) {
        auto where = BothIfPossible(x.where, y.where);
        if (!where) continue;
        const auto number = AsType(function(x.number, y.number), element.value->dtype());
        if (!number || std::isnan(*number)) return std::nullopt;
        cases.push_back({*std::move(where), *number});
      }
    }
    return Few(std::move(cases));
  }

 private:
  std::optional<Cases> Chosen(const Element& where) {
    const Element condition = reader_.Operand(where, ports::Where::kCondition);
    const auto holds = reader_.ReadConditions(condition), fails = reader_.ReadNegation(condition);
    if (!holds.ok() || !fails.ok()) return std::nullopt;
    Cases cases;
    for (const int branch : {ports::Where::kTrue, ports::Where::kFalse}) {
      const auto chosen = Read(reader_.Operand(where, branch));
      if (!chosen) return std::nullopt;
      for (const NumberCase& x : *chosen) {
        auto both = BothIfPossible(branch == ports::Where::kTrue ? *holds : *fails, x.where);
        if (both) cases.push_back({*std::move(both), x.number});
      }
    }
    return Few(std::move(cases));
  }

  static std::optional<Cases> Few(Cases cases) {
    return cases.size() <= kMostCases ? std::optional(std::move(cases)) : std::nullopt;
  }

  IndexingAnalysis& reader_;
  const bool inputs_;
};

}  // namespace

std::optional<Cases> ReadCases(IndexingAnalysis& reader, const Element& element, bool inputs) {
  return CaseReader(reader, inputs).Read(element);
}

std::optional<Cases> ReadTruthCases(IndexingAnalysis& reader, const Element& element, bool inputs) {
  return CaseReader(reader, inputs).Computed(element);
}

Conditions WhereOneOf(const Cases& cases, const std::function<bool(double)>& asked) {
  const auto is_asked = [&](const NumberCase& x) { return asked(x.number); };
  if (std::ranges::count_if(cases, is_asked) == 1) {
    return std::ranges::find_if(cases, is_asked)->where;
  }
  Conditions conditions;
  for (const NumberCase& x : cases) {
    if (!asked(x.number)) conditions = Both(conditions, NegationOf(x.where));
  }
  return conditions;
}

}  // namespace pagefuse
