// SPDX-License-Identifier: Apache-2.0
// Other forms of what is computed of single numbers: roots, signs, roundings, choices,
// conditions, and integers in other types.
#include <cmath>

#include "mutation_parts.h"

#include "pagefuse/passes/edit/graph_edit.h"

namespace pagefuse::testing {
namespace {

bool IsPlainFloat(const Value* value) { return value && value->dtype() == DataType::kFloat; }

Value* Number(Rewriter& rewriter, const Value* like, double number) {
  const auto scalar = Tensor::Allocate(like->dtype(), {});
  return scalar.ok() ? rewriter.Constant(FilledLike(*scalar, number)) : nullptr;
}

bool ReciprocalOtherwise(Node& node, Random& random) {
  if (!node.Is("Reciprocal") || !IsPlainFloat(node.input(0))) return false;
  Rewriter rewriter(node);
  if (random() % 2 == 0) {
    Value* one = Number(rewriter, node.input(0), 1);
    return rewriter.ReplaceWith(rewriter.Add("Div", {one, node.input(0)}));
  }
  Value* exponent = Number(rewriter, node.input(0), -1);
  return rewriter.ReplaceWith(rewriter.Add("Pow", {node.input(0), exponent}));
}

// x * (1 / y) as x / y: rounded once less, so not what is rounded to codes.
bool ProductWithReciprocalAsQuotient(Node& node, Random&) {
  if (!node.Is("Mul") || !IsPlainFloat(node.input(0))) return false;
  for (const Use& use : node.output(0)->uses()) {
    if (IsOneOf(*use.node, {"Round", "Floor", "Cast", "Clip", "Abs", "Max", "Min"})) return false;
  }
  for (int i : {0, 1}) {
    const Node* reciprocal = node.input(i)->producer();
    if (!reciprocal || !reciprocal->Is("Reciprocal")) continue;
    Rewriter rewriter(node);
    return rewriter.ReplaceWith(rewriter.Add("Div", {node.input(1 - i), reciprocal->input(0)}));
  }
  return false;
}

bool ReciprocalRootAsPower(Node& node, Random&) {
  if (!node.Is("Reciprocal") || !IsPlainFloat(node.input(0))) return false;
  const Node* root = node.input(0)->producer();
  if (!root || !root->Is("Sqrt")) return false;
  Rewriter rewriter(node);
  Value* exponent = Number(rewriter, node.input(0), -0.5);
  return rewriter.ReplaceWith(rewriter.Add("Pow", {root->input(0), exponent}));
}

bool NegOtherwise(Node& node, Random& random) {
  if (!node.Is("Neg") || (!IsFloat(node.input(0)) && !IsSignedInteger(node.input(0)))) return false;
  Rewriter rewriter(node);
  if (random() % 2 == 0) {
    return rewriter.ReplaceWith(
        rewriter.Add("Mul", {node.input(0), Number(rewriter, node.input(0), -1)}));
  }
  return rewriter.ReplaceWith(
      rewriter.Add("Sub", {Number(rewriter, node.input(0), 0), node.input(0)}));
}

bool AbsOtherwise(Node& node, Random& random) {
  if (!node.Is("Abs") || !IsPlainFloat(node.input(0))) return false;
  Rewriter rewriter(node);
  Value* x = node.input(0);
  if (random() % 2 == 0) {
    return rewriter.ReplaceWith(rewriter.Add("Mul", {x, rewriter.Add("Sign", {x})}));
  }
  Value* negative = rewriter.Add("Less", {x, Number(rewriter, x, 0)});
  return rewriter.ReplaceWith(rewriter.Add("Where", {negative, rewriter.Add("Neg", {x}), x}));
}

bool ReluOtherwise(Node& node, Random& random) {
  if (!node.Is("Relu") || !IsPlainFloat(node.input(0))) return false;
  Rewriter rewriter(node);
  Value* x = node.input(0);
  Value* zero = Number(rewriter, x, 0);
  switch (random() % 4) {
    case 0:
      return rewriter.ReplaceWith(rewriter.Add("Max", {x, zero}));
    case 1:
      return rewriter.ReplaceWith(rewriter.Add("Clip", {x, zero}));
    case 2:
      return rewriter.ReplaceWith(
          rewriter.Add("Where", {rewriter.Add("Greater", {x, zero}), x, zero}));
    default:
      return rewriter.ReplaceWith(rewriter.Add(
          "Mul", {x, rewriter.Cast(rewriter.Add("Greater", {x, zero}), DataType::kFloat)}));
  }
}

// Of floats; a NaN is not looked at.
bool FloatMaxAsWhere(Node& node, Random&) {
  if (!IsOneOf(node, {"Max", "Min"}) || node.num_inputs() != 2 || !IsPlainFloat(node.input(0))) {
    return false;
  }
  Rewriter rewriter(node);
  Value* above = rewriter.Add("Greater", node.inputs());
  const int larger = node.Is("Max") ? 0 : 1;
  return rewriter.ReplaceWith(
      rewriter.Add("Where", {above, node.input(larger), node.input(1 - larger)}));
}

bool ClipAsWhere(Node& node, Random&) {
  if (!node.Is("Clip") || !IsPlainFloat(node.input(0))) return false;
  Rewriter rewriter(node);
  Value* x = node.input(0);
  if (Value* least = node.input(1)) {
    x = rewriter.Add("Where", {rewriter.Add("Less", {x, least}), least, x});
  }
  if (Value* most = node.input(2)) {
    x = rewriter.Add("Where", {rewriter.Add("Greater", {x, most}), most, x});
  }
  return x != node.input(0) && rewriter.ReplaceWith(x);
}

bool CeilAsFloor(Node& node, Random&) {
  const bool ceil = node.Is("Ceil");
  if ((!ceil && !node.Is("Floor")) || !IsPlainFloat(node.input(0))) return false;
  Rewriter rewriter(node);
  Value* other = rewriter.Add(ceil ? "Floor" : "Ceil", {rewriter.Add("Neg", {node.input(0)})});
  return rewriter.ReplaceWith(rewriter.Add("Neg", {other}));
}

bool LogQuotientAsProduct(Node& node, Random&) {
  if (!node.Is("Div") || !node.input(0)->producer() || !node.input(0)->producer()->Is("Log")) {
    return false;
  }
  const auto base = ConstantNumber(node.input(1));
  if (!base) return false;
  Rewriter rewriter(node);
  Value* inverse = Number(rewriter, node.input(0), 1 / *base);
  return rewriter.ReplaceWith(rewriter.Add("Mul", {node.input(0), inverse}));
}

bool PowerOfTwoAsExp(Node& node, Random&) {
  if (!node.Is("Pow") || !IsPlainFloat(node.output(0)) || ConstantNumber(node.input(0)) != 2.0) {
    return false;
  }
  Rewriter rewriter(node);
  Value* scaled = rewriter.Add("Mul", {node.input(1), Number(rewriter, node.output(0), M_LN2)});
  // Float powers of e are near powers of two; rounded, they are.
  Value* power = rewriter.Add("Exp", {scaled});
  return rewriter.ReplaceWith(
      rewriter.Cast(rewriter.Cast(power, DataType::kBfloat16), DataType::kFloat));
}

bool TanhAsSigmoid(Node& node, Random&) {
  if (!node.Is("Tanh") || !IsPlainFloat(node.input(0))) return false;
  Rewriter rewriter(node);
  Value* two = Number(rewriter, node.input(0), 2);
  Value* twice = rewriter.Add(
      "Mul", {rewriter.Add("Sigmoid", {rewriter.Add("Mul", {node.input(0), two})}), two});
  return rewriter.ReplaceWith(rewriter.Add("Sub", {twice, Number(rewriter, node.input(0), 1)}));
}

// (x / c) as x * (1 / c), not exact.
bool DivAsProductWithInverse(Node& node, Random&) {
  if (!node.Is("Div") || !IsPlainFloat(node.input(0))) return false;
  const auto divisor = ConstantNumber(node.input(1));
  if (!divisor || *divisor == 0) return false;
  Rewriter rewriter(node);
  Value* inverse = rewriter.Constant(FilledLike(*ConstantTensor(node.input(1)), 1 / *divisor));
  return rewriter.ReplaceWith(rewriter.Add("Mul", {node.input(0), inverse}));
}

// The bits of a bfloat16, rounded to even by integers.
bool Bfloat16ByBits(Node& node, Random&) {
  if (!node.Is("Cast") || !IsPlainFloat(node.output(0))) return false;
  const Value* narrow = node.input(0);
  const Node* first = narrow->producer();
  if (narrow->dtype() != DataType::kBfloat16 || !first || !first->Is("Cast") ||
      !IsPlainFloat(first->input(0))) {
    return false;
  }
  Rewriter rewriter(node);
  const auto bits_number = [&](uint32_t number) {
    return rewriter.Constant(Tensor::Scalar<uint32_t>(number));
  };
  Value* bits =
      rewriter.AddInt("BitCast", {first->input(0)}, "to", static_cast<int64_t>(DataType::kUint32));
  constexpr uint32_t kShift = 16, kHalfBelow = 0x7fff, kUpper = 0xffff0000;
  Value* above = rewriter.Add("BitShift", {bits, bits_number(kShift)});
  above->producer()->SetAttribute("direction", MakeAttribute(std::string("RIGHT")));
  Value* odd = rewriter.Add("BitwiseAnd", {above, bits_number(1)});
  Value* rounded = rewriter.Add("Add", {rewriter.Add("Add", {bits, bits_number(kHalfBelow)}), odd});
  Value* kept = rewriter.Add("BitwiseAnd", {rounded, bits_number(kUpper)});
  return rewriter.ReplaceWith(
      rewriter.AddInt("BitCast", {kept}, "to", static_cast<int64_t>(DataType::kFloat)));
}

// --- choices and conditions ---

bool IsFinite(const Value* value) {
  const auto number = ConstantNumber(value);
  return !ConstantTensor(value) || (number && std::isfinite(*number) && std::abs(*number) < 1e30);
}

bool WhereAsSum(Node& node, Random&) {
  if (!node.Is("Where") || !IsFinite(node.input(1)) || !IsFinite(node.input(2))) return false;
  if (!IsPlainFloat(node.output(0)) && !IsSignedInteger(node.output(0))) return false;
  Rewriter rewriter(node);
  const DataType type = node.output(0)->dtype();
  Value* taken = rewriter.Add("Mul", {rewriter.Cast(node.input(0), type), node.input(1)});
  Value* other = rewriter.Cast(rewriter.Add("Not", {node.input(0)}), type);
  return rewriter.ReplaceWith(
      rewriter.Add("Add", {taken, rewriter.Add("Mul", {other, node.input(2)})}));
}

bool WhereOfAndInSteps(Node& node, Random&) {
  const Node* both = node.Is("Where") ? node.input(0)->producer() : nullptr;
  if (!both || !both->Is("And")) return false;
  Rewriter rewriter(node);
  Value* inner = rewriter.Add("Where", {both->input(1), node.input(1), node.input(2)});
  return rewriter.ReplaceWith(rewriter.Add("Where", {both->input(0), inner, node.input(2)}));
}

// Hidden scores as what is added to all of them.
bool MaskAsSum(Node& node, Random& random) {
  if (!node.Is("Where") || !IsPlainFloat(node.output(0))) return false;
  const auto hidden = ConstantNumber(node.input(2));
  if (!hidden || *hidden > -1e30 || ConstantTensor(node.input(1))) return false;
  Rewriter rewriter(node);
  Value* zero = Number(rewriter, node.output(0), 0);
  if (random() % 2 == 0) {
    Value* mask = rewriter.Add("Where", {node.input(0), zero, node.input(2)});
    return rewriter.ReplaceWith(rewriter.Add("Add", {node.input(1), mask}));
  }
  Value* low = Number(rewriter, node.output(0), -3.4028234663852886e38);
  Value* shown = rewriter.Cast(node.input(0), DataType::kFloat);
  Value* one = Number(rewriter, node.output(0), 1);
  Value* mask = rewriter.Add("Mul", {rewriter.Add("Sub", {one, shown}), low});
  return rewriter.ReplaceWith(rewriter.Add("Add", {node.input(1), mask}));
}

bool AndOtherwise(Node& node, Random& random) {
  const bool both = node.Is("And");
  if (!both && !node.Is("Or")) return false;
  Rewriter rewriter(node);
  if (random() % 2 == 0) {
    Value* first = rewriter.Add("Not", {node.input(0)});
    Value* second = rewriter.Add("Not", {node.input(1)});
    return rewriter.ReplaceWith(
        rewriter.Add("Not", {rewriter.Add(both ? "Or" : "And", {first, second})}));
  }
  Value* first = rewriter.Cast(node.input(0), DataType::kInt32);
  Value* second = rewriter.Cast(node.input(1), DataType::kInt32);
  return rewriter.ReplaceWith(
      rewriter.Cast(rewriter.Add(both ? "Mul" : "Max", {first, second}), DataType::kBool));
}

bool NotOtherwise(Node& node, Random&) {
  if (!node.Is("Not")) return false;
  Rewriter rewriter(node);
  Value* no = rewriter.Constant(Tensor::Scalar<bool>(false));
  return rewriter.ReplaceWith(rewriter.Add("Equal", {node.input(0), no}));
}

// a <= b as a < b + 1, and a < b as a - b < 0.
bool ComparisonOfIntegersOtherwise(Node& node, Random& random) {
  if (!IsSignedInteger(node.input(0))) return false;
  const bool equal = IsOneOf(node, {"LessOrEqual", "GreaterOrEqual"});
  if (!equal && !IsOneOf(node, {"Less", "Greater"})) return false;
  Rewriter rewriter(node);
  if (!equal || random() % 2 == 0) {
    Value* difference = rewriter.Add("Sub", {node.input(0), node.input(1)});
    return rewriter.ReplaceWith(
        rewriter.Add(node.op_type(), {difference, Number(rewriter, node.input(0), 0)}));
  }
  const bool less = node.Is("LessOrEqual");
  Value* next =
      rewriter.Add(less ? "Add" : "Sub", {node.input(1), Number(rewriter, node.input(1), 1)});
  return rewriter.ReplaceWith(rewriter.Add(less ? "Less" : "Greater", {node.input(0), next}));
}

// --- codes and scales ---

bool DequantizeAsProduct(Node& node, Random&) {
  if (!node.Is("DequantizeLinear") || node.input(2) || RankOf(node.input(1)) != 0 ||
      !IsPlainFloat(node.output(0))) {
    return false;
  }
  Rewriter rewriter(node);
  return rewriter.ReplaceWith(
      rewriter.Add("Mul", {rewriter.Cast(node.input(0), DataType::kFloat), node.input(1)}));
}

bool QuantizeAsQuotient(Node& node, Random&) {
  if (!node.Is("QuantizeLinear") || RankOf(node.input(1)) != 0 ||
      node.output(0)->dtype() != DataType::kFloat8E4M3FN) {
    return false;
  }
  Rewriter rewriter(node);
  Value* quotient = rewriter.Add("Div", {node.input(0), node.input(1)});
  return rewriter.ReplaceWith(rewriter.Cast(quotient, DataType::kFloat8E4M3FN));
}

constexpr Mutation kMutations[] = {
    {"reciprocal otherwise", ReciprocalOtherwise},
    {"product with reciprocal as quotient", ProductWithReciprocalAsQuotient},
    {"reciprocal root as power", ReciprocalRootAsPower},
    {"neg otherwise", NegOtherwise},
    {"abs otherwise", AbsOtherwise},
    {"relu otherwise", ReluOtherwise},
    {"float max as where", FloatMaxAsWhere},
    {"clip as where", ClipAsWhere},
    {"ceil as floor", CeilAsFloor},
    {"log quotient as product", LogQuotientAsProduct},
    {"power of two as exp", PowerOfTwoAsExp},
    {"tanh as sigmoid", TanhAsSigmoid},
    {"div as product with inverse", DivAsProductWithInverse},
    {"bfloat16 by bits", Bfloat16ByBits},
    {"where as sum", WhereAsSum},
    {"where of and in steps", WhereOfAndInSteps},
    {"mask as sum", MaskAsSum},
    {"and otherwise", AndOtherwise},
    {"not otherwise", NotOtherwise},
    {"comparison of integers otherwise", ComparisonOfIntegersOtherwise},
    {"dequantize as product", DequantizeAsProduct},
    {"quantize as quotient", QuantizeAsQuotient},
};

}  // namespace

std::span<const Mutation> NumberVariants() { return kMutations; }

}  // namespace pagefuse::testing
