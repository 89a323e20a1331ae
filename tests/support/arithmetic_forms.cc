// SPDX-License-Identifier: Apache-2.0
// Other forms of sums, comparisons, choices and reductions.
#include <cmath>
#include <limits>

#include "mutation_parts.h"

#include "pagefuse/passes/edit/graph_edit.h"

namespace pagefuse::testing {
namespace {

bool SwapOperands(Node& node) {
  Value* first = node.input(0);
  node.SetInput(0, node.input(1));
  node.SetInput(1, first);
  return true;
}

bool Commute(Node& node, Random&) {
  const bool commutes = IsOneOf(node, {"Add", "Mul", "Max", "Min", "And", "Or", "Xor", "Equal",
                                       "BitwiseAnd", "BitwiseOr", "BitwiseXor"});
  return commutes && node.num_inputs() == 2 && SwapOperands(node);
}

bool TurnComparison(Node& node, Random&) {
  static constexpr std::pair<std::string_view, std::string_view> kTurned[] = {
      {"Less", "Greater"},
      {"Greater", "Less"},
      {"LessOrEqual", "GreaterOrEqual"},
      {"GreaterOrEqual", "LessOrEqual"}};
  for (const auto& [op, other] : kTurned) {
    if (node.Is(op)) return SwapOperands(node) && Rename(node, other);
  }
  return false;
}

// Of integers: no NaN compares as false both ways.
bool ComparisonAsNot(Node& node, Random&) {
  static constexpr std::pair<std::string_view, std::string_view> kOpposite[] = {
      {"Less", "GreaterOrEqual"},
      {"Greater", "LessOrEqual"},
      {"LessOrEqual", "Greater"},
      {"GreaterOrEqual", "Less"}};
  if (!IsSignedInteger(node.input(0))) return false;
  for (const auto& [op, opposite] : kOpposite) {
    if (!node.Is(op)) continue;
    Rewriter rewriter(node);
    return rewriter.ReplaceWith(rewriter.Add("Not", {rewriter.Add(opposite, node.inputs())}));
  }
  return false;
}

bool SubAsAddNeg(Node& node, Random&) {
  if (!node.Is("Sub") || (!IsFloat(node.input(0)) && !IsSignedInteger(node.input(0)))) return false;
  Rewriter rewriter(node);
  return rewriter.ReplaceWith(
      rewriter.Add("Add", {node.input(0), rewriter.Add("Neg", {node.input(1)})}));
}

bool IsPowerOfTwo(double number) {
  int exponent = 0;
  return number > 0 && std::isfinite(number) && std::frexp(number, &exponent) == 0.5;
}

// By a power of two, which is exact.
bool DivAsMul(Node& node, Random&) {
  const bool div = node.Is("Div");
  if ((!div && !node.Is("Mul")) || !IsFloat(node.input(0))) return false;
  const std::optional<double> factor = ConstantNumber(node.input(1));
  if (!factor || !IsPowerOfTwo(*factor)) return false;
  Rewriter rewriter(node);
  Value* inverse = rewriter.Constant(FilledLike(*ConstantTensor(node.input(1)), 1 / *factor));
  return rewriter.ReplaceWith(rewriter.Add(div ? "Mul" : "Div", {node.input(0), inverse}));
}

bool DivAsReciprocal(Node& node, Random&) {
  if (!IsFloat(node.input(0)) || !node.Is("Div")) return false;
  const std::optional<double> dividend = ConstantNumber(node.input(0));
  if (!dividend || *dividend != 1 || RankOf(node.input(0)) > 0) return false;
  Rewriter rewriter(node);
  return rewriter.ReplaceWith(rewriter.Add("Reciprocal", {node.input(1)}));
}

bool WhereOfNot(Node& node, Random&) {
  if (!node.Is("Where")) return false;
  Rewriter rewriter(node);
  Value* opposite = rewriter.Add("Not", {node.input(0)});
  return rewriter.ReplaceWith(rewriter.Add("Where", {opposite, node.input(2), node.input(1)}));
}

bool ClipAsMaxMin(Node& node, Random&) {
  if (!node.Is("Clip") || !node.attributes().empty()) return false;
  Rewriter rewriter(node);
  Value* value = node.input(0);
  if (node.input(1)) value = rewriter.Add("Max", {value, node.input(1)});
  if (node.input(2)) value = rewriter.Add("Min", {value, node.input(2)});
  return value != node.input(0) && rewriter.ReplaceWith(value);
}

bool MaxAsClip(Node& node, Random&) {
  if (!IsOneOf(node, {"Max", "Min"}) || node.num_inputs() != 2) return false;
  if (!ConstantNumber(node.input(1)) || RankOf(node.input(1)) != 0) return false;
  Rewriter rewriter(node);
  Value* bound = node.input(1);
  return rewriter.ReplaceWith(node.Is("Max")
                                  ? rewriter.Add("Clip", {node.input(0), bound})
                                  : rewriter.Add("Clip", {node.input(0), nullptr, bound}));
}

// Of integers, which are never NaN.
bool MaxAsWhere(Node& node, Random&) {
  if (!IsOneOf(node, {"Max", "Min"}) || node.num_inputs() != 2) return false;
  if (!IsSignedInteger(node.input(0))) return false;
  Rewriter rewriter(node);
  Value* less = rewriter.Add("Less", node.inputs());
  const int smaller = node.Is("Max") ? 1 : 0;
  return rewriter.ReplaceWith(
      rewriter.Add("Where", {less, node.input(smaller), node.input(1 - smaller)}));
}

bool SquareOtherwise(Node& node, Random&) {
  Rewriter rewriter(node);
  if (node.Is("Pow") && ConstantNumber(node.input(1)) == 2.0 && RankOf(node.input(1)) <= 0) {
    return rewriter.ReplaceWith(rewriter.Add("Mul", {node.input(0), node.input(0)}));
  }
  if (!node.Is("Mul") || node.input(0) != node.input(1) || !IsFloat(node.input(0))) return false;
  Value* two = rewriter.Constant(Tensor::Scalar<float>(2.0f));
  return rewriter.ReplaceWith(rewriter.Add("Pow", {node.input(0), two}));
}

bool SqrtAsPow(Node& node, Random&) {
  if (!node.Is("Sqrt") || node.input(0)->dtype() != DataType::kFloat) return false;
  Rewriter rewriter(node);
  Value* half = rewriter.Constant(Tensor::Scalar<float>(0.5f));
  return rewriter.ReplaceWith(rewriter.Add("Pow", {node.input(0), half}));
}

bool AbsAsMax(Node& node, Random&) {
  if (!node.Is("Abs") || !IsFloat(node.input(0))) return false;
  Rewriter rewriter(node);
  return rewriter.ReplaceWith(
      rewriter.Add("Max", {node.input(0), rewriter.Add("Neg", {node.input(0)})}));
}

bool BoolAsWhere(Node& node, Random&) {
  if (!node.Is("Cast") || node.input(0)->dtype() != DataType::kBool) return false;
  const auto like = Tensor::Allocate(node.output(0)->dtype(), {});
  if (!like.ok() || (!IsFloat(node.output(0)) && !IsSignedInteger(node.output(0)))) return false;
  Rewriter rewriter(node);
  Value* one = rewriter.Constant(FilledLike(*like, 1));
  Value* zero = rewriter.Constant(FilledLike(*like, 0));
  return rewriter.ReplaceWith(rewriter.Add("Where", {node.input(0), one, zero}));
}

// --- reductions ---

bool IsReduction(const Node& node) {
  return IsOneOf(node, {"ReduceSum", "ReduceMax", "ReduceMin", "ReduceMean"});
}

// Keeps the reduced axes and squeezes them, or the other way round.
bool ReduceAndSqueeze(Node& node, Random&) {
  const auto axes = ConstantInts(node.input(1));
  if (!IsReduction(node) || !axes || axes->empty()) return false;
  const bool keeps = IntOr(node, "keepdims", 1) != 0;
  Rewriter rewriter(node);
  Value* reduced = rewriter.AddInt(node.op_type(), node.inputs(), "keepdims", keeps ? 0 : 1);
  return rewriter.ReplaceWith(
      rewriter.Add(keeps ? "Unsqueeze" : "Squeeze", {reduced, rewriter.Ints(*axes)}));
}

bool MeanAsSum(Node& node, Random&) {
  const auto axes = ConstantInts(node.input(1));
  if (!node.Is("ReduceMean") || !axes || axes->size() != 1) return false;
  const int rank = RankOf(node.input(0));
  const auto size = DimAt(node.input(0), NormalAxis(axes->front(), rank));
  const auto like = Tensor::Allocate(node.input(0)->dtype(), {});
  if (!size || !like.ok()) return false;
  Rewriter rewriter(node);
  Value* sum = rewriter.AddInt("ReduceSum", node.inputs(), "keepdims", IntOr(node, "keepdims", 1));
  const bool exact = IsPowerOfTwo(static_cast<double>(*size));
  const auto factor = static_cast<double>(*size);
  Value* count = rewriter.Constant(FilledLike(*like, exact ? 1 / factor : factor));
  return rewriter.ReplaceWith(rewriter.Add(exact ? "Mul" : "Div", {sum, count}));
}

constexpr Mutation kMutations[] = {
    {"commute", Commute},
    {"turn comparison", TurnComparison},
    {"comparison as not", ComparisonAsNot},
    {"sub as add neg", SubAsAddNeg},
    {"div as mul", DivAsMul},
    {"div as reciprocal", DivAsReciprocal},
    {"where of not", WhereOfNot},
    {"clip as max min", ClipAsMaxMin},
    {"max as clip", MaxAsClip},
    {"max as where", MaxAsWhere},
    {"square otherwise", SquareOtherwise},
    {"sqrt as pow", SqrtAsPow},
    {"abs as max", AbsAsMax},
    {"bool as where", BoolAsWhere},
    {"reduce and squeeze", ReduceAndSqueeze},
    {"mean as sum", MeanAsSum},
};

}  // namespace

std::span<const Mutation> ArithmeticVariants() { return kMutations; }

}  // namespace pagefuse::testing
