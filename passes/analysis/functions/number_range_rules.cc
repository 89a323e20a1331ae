// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/analysis/functions/number_range_rules.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string>

#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/edit/constants.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/op_types.h"
#include "pagefuse/passes/edit/ports.h"
#include "pagefuse/passes/rewrite/pattern.h"

namespace pagefuse {

namespace {}  // namespace

bool AreWeights(const Value* value) {
  const Node* node = value->producer();
  while (node && (IsViewNode(*node) || IsAnyOf(*node, {"Cast", "Identity", "Dropout"}))) {
    node = node->input(0)->producer();
  }
  if (node && node->Is("Where")) {
    const auto weighs = [](const Value* branch) {
      return NumberOf(branch) == 0 || AreWeights(branch);
    };
    return weighs(node->input(ports::Where::kTrue)) && weighs(node->input(ports::Where::kFalse));
  }
  if (!node || !node->Is("Softmax") || !node->output(0)->shape()) return false;
  const int rank = node->output(0)->shape()->rank();
  return NormalAxis(IntOr(*node, "axis", -1), rank) == rank - 1;
}

NumberRange Gated(const NumberRange& x) {
  return {.least = -std::abs(std::min(x.least, 0.0)),
          .most = std::max(x.most, 0.0),
          .nan = x.nan || x.may_be_infinite(),
          .typical = x.typical};
}

namespace {

constexpr double kInfinity = NumberRange::kInfinity;

// --- moves, choices, casts ---

// Elements of input 0 as they are, some of them, or numbers between them.
bool PassesOn(const Node& node) {
  return IsViewNode(node) ||
         IsAnyOf(node, {"Identity", "Transpose", "Expand", "Slice", "Split", "Gather", "GatherND",
                        "GatherElements", "Tile", "Cast", "CastLike", "Dropout", "TopK",
                        "ReduceMean", "ReduceMax", "ReduceMin"});
}

NumberRange SameRule(const RangeNode& n) { return n.in(0); }

// Whether an output of the graph is what a past and new rows are joined to.
bool IsPast(const Value& input, const Value& joined) {
  const bool given = input.is_input() && !input.initializer();
  return given && (joined.is_output() || std::ranges::any_of(joined.uses(), [](const Use& use) {
                     return use.node->Is("Identity") && use.node->output(0)->is_output();
                   }));
}

NumberRange ConcatRule(const RangeNode& n) {
  std::optional<NumberRange> all;
  for (int i = 0; i < n.node.num_inputs(); ++i) {
    const bool past = n.node.num_inputs() == 2 && i == 0;
    if (past && IsPast(*n.node.input(0), *n.node.output(0))) continue;
    all = all ? Join(*all, n.in(i)) : n.in(i);
  }
  return all.value_or(NumberRange::Any());
}

// A cache of a fixed length, into which rows are written.
NumberRange WrittenRule(const RangeNode& n) {
  const bool past = IsPast(*n.node.input(0), *n.node.output(0));
  return past ? Join(n.in(1), NumberRange::Between(0, 0, 0)) : Join(n.in(0), n.in(1));
}

NumberRange PadRule(const RangeNode& n) { return Join(n.in(0), n.in(2)); }
NumberRange ScatterRule(const RangeNode& n) { return Join(n.in(0), n.in(2)); }
NumberRange TriluRule(const RangeNode& n) { return Join(n.in(0), NumberRange::Between(0, 0, 0)); }

NumberRange CopiesOfOneRule(const RangeNode& n) {
  const Attribute* value = n.node.attribute("value");
  const Tensor* tensor = value ? std::get_if<Tensor>(&value->value) : nullptr;
  const double number = tensor ? ScalarNumber(*tensor).value_or(NAN) : 0;
  if (std::isnan(number)) return NumberRange::Any();
  return NumberRange::Between(number, number, std::abs(number));
}

// What is left of `x` where it is compared and found greater, or not greater, than `bound`.
NumberRange Compared(NumberRange x, const NumberRange& bound, bool greater, bool holds) {
  if (greater) x.least = std::max(x.least, bound.least);
  if (!greater) x.most = std::min(x.most, bound.most);
  // No comparison with NaN holds.
  x.nan = x.nan && !holds;
  return x;
}

// What a branch of Where may be by its condition: Where(IsNaN(x), y, x) is no NaN, and
// Where(Greater(x, 20), x, y) is x above 20.
NumberRange ChosenRule(const RangeNode& n, int branch) {
  const NumberRange x = n.in(branch);
  const Value* chosen = n.node.input(branch);
  const bool holds = branch == ports::Where::kTrue;
  const Node* test = n.node.input(ports::Where::kCondition)->producer();
  if (!test) return x;
  if (test->Is("IsNaN") && test->input(0) == chosen && !holds) {
    return {.least = x.least, .most = x.most, .nan = false, .typical = x.typical};
  }
  const bool greater = IsAnyOf(*test, {"Greater", "GreaterOrEqual"});
  if (!greater && !IsAnyOf(*test, {"Less", "LessOrEqual"})) return x;
  for (const int side : {0, 1}) {
    if (test->input(side) != chosen) continue;
    const NumberRange bound = n.ranges.Input(*test, 1 - side);
    return bound.nan ? x : Compared(x, bound, (greater == holds) == (side == 0), holds);
  }
  return x;
}

NumberRange WhereRule(const RangeNode& n) {
  return Join(ChosenRule(n, ports::Where::kTrue), ChosenRule(n, ports::Where::kFalse));
}

// --- one operand ---

NumberRange NegRule(const RangeNode& n) { return Negated(n.in(0)); }

NumberRange AbsRule(const RangeNode& n) {
  NumberRange x = n.in(0);
  const double most = x.magnitude();
  x.least = x.may_be_zero() ? 0 : std::min(std::abs(x.least), std::abs(x.most));
  x.most = most;
  return x;
}

// A function that grows with its operand.
template <double (*kFunction)(double)>
NumberRange GrowingRule(const RangeNode& n) {
  const NumberRange x = n.in(0);
  return {.least = kFunction(x.least),
          .most = kFunction(x.most),
          .nan = x.nan,
          .typical = std::abs(kFunction(x.typical))};
}

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double Relu(double x) { return std::max(x, 0.0); }
double Tanh(double x) { return std::tanh(x); }
double Erf(double x) { return std::erf(x); }
double Floor(double x) { return std::floor(x); }
double Ceil(double x) { return std::ceil(x); }
double Round(double x) { return std::nearbyint(x); }
double Softplus(double x) { return std::log1p(std::exp(std::min(x, 700.0))) + Relu(x - 700); }

// Floats end long before doubles do.
double Exp(double x) { return x > 88.7 ? kInfinity : std::exp(x); }

NumberRange SqrtRule(const RangeNode& n) {
  const NumberRange x = n.in(0);
  return {.least = std::sqrt(std::max(x.least, 0.0)),
          .most = std::sqrt(std::max(x.most, 0.0)),
          .nan = x.nan || !x.never_negative(),
          .typical = std::sqrt(x.typical)};
}

NumberRange LogRule(const RangeNode& n) {
  const NumberRange x = n.in(0);
  return {.least = x.least > 0 ? std::log(x.least) : -kInfinity,
          .most = std::log(std::max(x.most, 0.0)),
          .nan = x.nan || !x.never_negative(),
          .typical = 1 + std::abs(std::log(std::max(x.typical, 1e-30)))};
}

NumberRange ReciprocalRule(const RangeNode& n) {
  return Quotient(NumberRange::Between(1, 1, 1), n.in(0));
}

NumberRange WaveRule(const RangeNode& n) {
  NumberRange wave = NumberRange::Between(-1, 1, 0.7);
  wave.nan = !n.in(0).finite();
  return wave;
}

NumberRange GatedRule(const RangeNode& n) { return Gated(n.in(0)); }

// x with a bias.
NumberRange GatedBiasRule(const RangeNode& n) {
  return Gated(n.node.input(1) ? Sum(n.in(0), n.in(1)) : n.in(0));
}

// Elu, Selu, Celu, LeakyRelu and ThresholdedRelu: x, or less of it below 0.
NumberRange LeakyRule(const RangeNode& n) {
  constexpr double kMostOfDefaults = 1.76;  // Selu's
  const double alpha = std::abs(n.node.FloatAttribute("alpha", 1).value_or(1));
  const double gamma = std::abs(n.node.FloatAttribute("gamma", kMostOfDefaults).value_or(1));
  const double most = std::max({1.0, alpha, alpha * gamma, gamma});
  const NumberRange x = n.in(0);
  return {.least = x.least < 0 ? -most * std::max(1.0, -x.least) : 0,
          .most = most * std::max(x.most, 0.0),
          .nan = x.nan,
          .typical = x.typical};
}

NumberRange HardSigmoidRule(const RangeNode& n) {
  NumberRange x = NumberRange::Between(0, 1, 0.5);
  x.nan = n.in(0).nan;
  return x;
}

NumberRange SignRule(const RangeNode& n) {
  NumberRange sign = NumberRange::Between(-1, 1, 1);
  sign.nan = n.in(0).nan;
  return sign;
}

NumberRange PowRule(const RangeNode& n) {
  const NumberRange x = n.in(0);
  const auto exponent = NumberOf(n.node.input(1));
  if (!exponent) return NumberRange::Any();
  const double typical = std::pow(x.typical, *exponent);
  if (*exponent > 0 && std::fmod(*exponent, 2) == 0) {
    return {
        .least = 0, .most = std::pow(x.magnitude(), *exponent), .nan = x.nan, .typical = typical};
  }
  if (*exponent > 0 && (x.never_negative() || *exponent == std::floor(*exponent))) {
    return {.least = std::pow(x.least, *exponent),
            .most = std::pow(x.most, *exponent),
            .nan = x.nan,
            .typical = typical};
  }
  if (*exponent < 0 && x.least > 0) {
    return {.least = std::pow(x.most, *exponent),
            .most = std::pow(x.least, *exponent),
            .nan = x.nan,
            .typical = typical};
  }
  return NumberRange::Any();
}

// The estimate, as far as the bounds allow it: what is below -10000 is no small number.
NumberRange WithinBounds(NumberRange x) {
  const double nearest = x.least > 0 ? x.least : std::max(-x.most, 0.0);
  if (std::isfinite(nearest)) x.typical = std::clamp(x.typical, nearest, x.magnitude());
  return x;
}

NumberRange ClipRule(const RangeNode& n) {
  NumberRange x = n.in(0);
  for (const int i : {1, 2}) {
    if (!n.node.input(i)) continue;
    const NumberRange bound = n.in(i);
    if (i == 1) x.least = std::max(x.least, bound.least), x.most = std::max(x.most, bound.most);
    if (i == 2) x.least = std::min(x.least, bound.least), x.most = std::min(x.most, bound.most);
    x.nan = x.nan || bound.nan;
  }
  return WithinBounds(x);
}

// --- two operands ---

NumberRange AddRule(const RangeNode& n) {
  NumberRange sum = n.in(0);
  for (int i = 1; i < n.node.num_inputs(); ++i) sum = Sum(sum, n.in(i));
  return sum;
}

// True for what is no less than any of a row of x: its largest, of that and others the largest, and
// where that is infinite, or low, 0 in its place.
bool IsNoLess(const Value* value, const Value* x, int depth = 0) {
  constexpr int kMostSteps = 4;
  const Node* node = depth < kMostSteps ? value->producer() : nullptr;
  if (!node) return false;
  if (node->Is("ReduceMax")) return node->input(0) == x;
  if (node->Is("Max")) {
    return std::ranges::any_of(node->inputs(),
                               [&](const Value* of) { return IsNoLess(of, x, depth + 1); });
  }
  const Node* test =
      node->Is("Where") ? node->input(ports::Where::kCondition)->producer() : nullptr;
  if (!test || NumberOf(node->input(ports::Where::kTrue)) != 0) return false;
  const bool low = test->Is("Less") && NumberOf(test->input(1)).value_or(1) <= 0;
  return (low || test->Is("IsInf")) && test->input(0) == node->input(ports::Where::kFalse) &&
         IsNoLess(test->input(0), x, depth + 1);
}

// Less the largest of a row, of which not all is minus infinity (SoftmaxRule).
NumberRange SubRule(const RangeNode& n) {
  const NumberRange x = n.in(0);
  if (!IsNoLess(n.node.input(1), n.node.input(0))) return Sum(x, Negated(n.in(1)));
  return {
      .least = -kInfinity, .most = 0, .nan = x.nan || x.most == kInfinity, .typical = x.typical};
}

NumberRange MulRule(const RangeNode& n) {
  NumberRange product = Product(n.in(0), n.in(1));
  if (n.node.input(0) == n.node.input(1)) {
    product.least = 0;
    // Infinity squared is no NaN.
    product.nan = n.in(0).nan;
  }
  return product;
}

template <bool kLargest>
NumberRange ExtremeRule(const RangeNode& n) {
  NumberRange x = n.in(0);
  for (int i = 1; i < n.node.num_inputs(); ++i) {
    const NumberRange y = n.in(i);
    x = {.least = kLargest ? std::max(x.least, y.least) : std::min(x.least, y.least),
         .most = kLargest ? std::max(x.most, y.most) : std::min(x.most, y.most),
         .nan = x.nan || y.nan,
         .typical = Join(x, y).typical};
  }
  return WithinBounds(x);
}

// --- sums and norms ---

NumberRange SumRule(const RangeNode& n) {
  const NumberRange x = n.in(0);
  return SumOfProducts(x, NumberRange::Between(1, 1, 1), kLongestSum);
}

// Functions that are above 0 everywhere, down to where floats end.
bool IsPositive(const RangeNode& n, const Value* value, int depth = 0) {
  constexpr int kMostSteps = 16;
  const Node* node = depth < kMostSteps ? value->producer() : nullptr;
  if (!node) return false;
  if (IsAnyOf(*node, {"Sigmoid", "Softplus", "Exp"})) return true;
  if (node->Is("Where")) {
    return std::ranges::all_of(std::array{ports::Where::kTrue, ports::Where::kFalse}, [&](int i) {
      return ChosenRule({n.ranges, *node}, i).least > 0 || IsPositive(n, node->input(i), depth + 1);
    });
  }
  return (PassesOn(*node) || node->Is("Sqrt")) && IsPositive(n, node->input(0), depth + 1);
}

// The shares of numbers in their sum, as experts are weighed, where these are positive or the
// largest of probabilities: a softmax of N numbers has one of 1 / N at least.
bool AreShares(const RangeNode& n) {
  const Value* part = n.node.input(0);
  const Node* sum = n.node.input(1)->producer();
  if (!sum || !sum->Is("ReduceSum") || sum->input(0) != part) return false;
  const auto& shape = n.node.input(1)->shape();
  const bool of_rows = shape && part->shape() && shape->rank() == part->shape()->rank() &&
                       shape->back(0).constant() == 1;
  if (!of_rows) return false;
  const Node* top = part->producer();
  const bool largest =
      top && top->Is("TopK") && part == top->output(0) && IntOr(*top, "largest", 1) != 0;
  return (largest && AreWeights(top->input(0))) || IsPositive(n, part);
}

NumberRange DivRule(const RangeNode& n) {
  if (!AreShares(n)) return Quotient(n.in(0), n.in(1));
  NumberRange shares = NumberRange::Between(0, 1, 1);
  shares.nan = n.in(0).nan;
  return shares;
}

const RangeRules& ElementRules() {
  static const auto& rules = *new RangeRules{
      {".Concat", ConcatRule},
      {".Pad", PadRule},
      {".TensorScatter", WrittenRule},
      {".ScatterND", ScatterRule},
      {".ScatterElements", ScatterRule},
      {".Trilu", TriluRule},
      {".ConstantOfShape", CopiesOfOneRule},
      {".Where", WhereRule},
      {".Neg", NegRule},
      {".Abs", AbsRule},
      {".Sigmoid", GrowingRule<Sigmoid>},
      {".Tanh", GrowingRule<Tanh>},
      {".Erf", GrowingRule<Erf>},
      {".Relu", GrowingRule<Relu>},
      {".Floor", GrowingRule<Floor>},
      {".Ceil", GrowingRule<Ceil>},
      {".Round", GrowingRule<Round>},
      {".Softplus", GrowingRule<Softplus>},
      {".Exp", GrowingRule<Exp>},
      {".Sqrt", SqrtRule},
      {".Log", LogRule},
      {".Reciprocal", ReciprocalRule},
      {".Sin", WaveRule},
      {".Cos", WaveRule},
      {".Gelu", GatedRule},
      {".Swish", GatedRule},
      {".Mish", GatedRule},
      {"com.microsoft.Gelu", GatedRule},
      {"com.microsoft.FastGelu", GatedBiasRule},
      {"com.microsoft.BiasGelu", GatedBiasRule},
      {"com.microsoft.QuickGelu", GatedRule},
      {".HardSwish", GatedRule},
      {".HardSigmoid", HardSigmoidRule},
      {".Elu", LeakyRule},
      {".Selu", LeakyRule},
      {".Celu", LeakyRule},
      {".LeakyRelu", LeakyRule},
      {".ThresholdedRelu", LeakyRule},
      {".Sign", SignRule},
      {".Pow", PowRule},
      {".Clip", ClipRule},
      {".Add", AddRule},
      {".Sum", AddRule},
      {".Sub", SubRule},
      {".Mul", MulRule},
      {".Div", DivRule},
      {".Max", ExtremeRule<true>},
      {".Min", ExtremeRule<false>},
      {".ReduceSum", SumRule},
      {".CumSum", SumRule},
  };
  return rules;
}

}  // namespace

double RangeNode::Length(int i, int from_last) const {
  const Value* value = node.input(i);
  const auto& shape = value ? value->shape() : std::nullopt;
  if (!shape || from_last >= shape->rank()) return kLongestSum;
  const auto length = shape->back(from_last).constant();
  return length ? static_cast<double>(*length) : kLongestSum;
}

RangeRule FindRangeRule(const Node& node) {
  if (PassesOn(node)) return SameRule;
  const std::string op = StrCat(node.domain(), ".", node.op_type());
  for (const RangeRules* rules : {&ElementRules(), &LayerRangeRules()}) {
    if (const auto it = rules->find(op); it != rules->end()) return it->second;
  }
  return nullptr;
}

}  // namespace pagefuse
