// SPDX-License-Identifier: Apache-2.0
// Rules for products and softmaxes that are written out, or computed between views that undo each
// other.
#include <cmath>
#include <numeric>
#include <utility>

#include "pagefuse/passes/edit/axes.h"
#include "pagefuse/passes/simplify/products/product_rules.h"

namespace pagefuse {
namespace {

bool IsOne(const Dim& dim) { return dim == Dim(1); }

// The only axis of length 1 where the other operand is longer; -1 if there are none or more.
int OuterAxis(const Shape& own, const Shape& other) {
  int found = -1;
  for (int axis = 0; axis < own.rank(); ++axis) {
    if (!IsOne(own[axis]) || IsOne(other[axis])) continue;
    if (found >= 0) return -1;
    found = axis;
  }
  return found;
}

// The only axis of length 1 of both; -1 if there are none or more.
int SharedUnitAxis(const Shape& a, const Shape& b) {
  int found = -1;
  for (int axis = 0; axis < a.rank(); ++axis) {
    if (!IsOne(a[axis]) || !IsOne(b[axis])) continue;
    if (found >= 0) return -1;
    found = axis;
  }
  return found;
}

std::string Without(std::string labels, int place) {
  labels.erase(static_cast<size_t>(place), 1);
  return labels;
}

// A factor of a product that is a number times something; through a Transpose.
struct ScaledOperand {
  Value* value = nullptr;  // without it
  const Node* transpose = nullptr;
  double number = 1;
  Value* factor = nullptr;
};
ScaledOperand ScaledOf(Value* operand) {
  ScaledOperand scaled{.value = operand, .transpose = nullptr, .factor = nullptr};
  const Value* inner = operand;
  const Node* node = operand->producer();
  if (node && node->Is("Transpose") && IsReadOnce(inner)) {
    scaled.transpose = node;
    inner = node->input(0);
    node = inner->producer();
  }
  if (!node || !node->Is("Mul") || !IsReadOnce(inner)) return scaled;
  for (int side : {0, 1}) {
    const auto number = ScalarOf(node->input(side));
    if (!number || !std::isfinite(*number)) continue;
    scaled.value = node->input(1 - side);
    scaled.number = *number;
    scaled.factor = node->input(side);
    break;
  }
  return scaled;
}

// The operand before it was scaled, transposed as it was.
Value* WithoutFactor(Node& node, const ScaledOperand& scaled, Peephole& peephole) {
  if (!scaled.transpose) return scaled.value;
  return peephole.AddNode(node, "Transpose", {scaled.value}, *scaled.transpose);
}

int64_t KeptAxis(const Node& reduction, const SymbolicContents& contents) {
  return IntOr(reduction, "keepdims", 1) != 0 ? OnlyAxis(reduction, contents) : -1;
}

bool MakeSoftmax(Node& node, Peephole& peephole, Value* scores, int64_t axis) {
  if (!SameShapes(node.output(0), scores)) return false;
  return peephole.ReplaceByNode(node, "Softmax", {scores}, {{"axis", axis}});
}

// exp (x) or 2^x: what x is, and by what it is scaled to be a power of e.
struct Power {
  const Node* node = nullptr;
  Value* exponent = nullptr;
  double scale = 1;
};
Power PowerOf(const Value* value) {
  if (const Node* node = ProducerIf(value, "Exp")) return {node, node->input(0), 1};
  const Node* node = ProducerIf(value, "Pow");
  if (!node || NumberOf(node->input(0)) != 2.0) return {};
  return {node, node->input(1), M_LN2};
}

// The scores times a number, within the choice of what hides some.
Value* ScaledScores(Value* scores, double scale, Node& before, Peephole& peephole) {
  if (scale == 1) return scores;
  const Node* choice = ProducerIf(scores, "Where");
  for (int branch : {1, 2}) {
    const auto number = choice ? NumberOf(choice->input(3 - branch)) : std::nullopt;
    if (!number || *number > -1e30) continue;
    std::vector<Value*> inputs(choice->inputs().begin(), choice->inputs().end());
    inputs[branch] = ScaledScores(inputs[branch], scale, before, peephole);
    return peephole.AddNode(before, "Where", inputs);
  }
  Graph& graph = peephole.graph();
  Value* factor = graph.AddInitializer(graph.UniqueName("factor"),
                                       Tensor::Scalar<float>(static_cast<float>(scale)));
  return peephole.AddNode(before, "Mul", {scores, factor});
}

}  // namespace

// Rows [.., m, 1, k] times columns [.., 1, n, k], summed along k.
bool SumOfOuterProducts(Node& node, Peephole& peephole) {
  const Node* product = ProducerIf(node.input(0), "Mul");
  const auto axes = KnownInts(node.input(1), peephole.contents());
  if (!product || !axes || axes->size() != 1 || !IsReadOnce(node.input(0)) ||
      !IsFloatingPoint(node.output(0)->dtype())) {
    return false;
  }
  const Shape *left = ShapeOf(product->input(0)), *right = ShapeOf(product->input(1));
  if (!left || !right || left->rank() != right->rank()) return false;
  const int rank = left->rank();
  const auto summed = static_cast<int>(NormalAxis(axes->front(), rank));
  int rows = OuterAxis(*right, *left), columns = OuterAxis(*left, *right);
  // One row, or one column.
  if (summed == rank - 1 && (rows < 0) != (columns < 0)) {
    (rows < 0 ? rows : columns) = SharedUnitAxis(*left, *right);
  }
  if (rows < 0 || columns < 0 || summed == rows || summed == columns) return false;
  for (int axis = 0; axis < rank; ++axis) {
    const bool outer = axis == rows || axis == columns;
    if (!outer && !ProvablyEqual((*left)[axis], (*right)[axis])) return false;
  }
  std::string labels(rank, 'a');
  std::iota(labels.begin(), labels.end(), 'a');
  const auto squeezed = [&](int side, int axis) {
    Value* at = peephole.Ints("axis", {axis});
    return peephole.AddNode(node, "Squeeze", {product->input(side), at});
  };
  const bool keeps = IntOr(node, "keepdims", 1) != 0;
  const std::string equation =
      Without(labels, columns) + "," + Without(labels, rows) + "->" + Without(labels, summed);
  Value* sum = peephole.AddNode(node, "Einsum", {squeezed(0, columns), squeezed(1, rows)},
                                {{"equation", equation}});
  if (!keeps) return peephole.Replace(node, sum);
  Value* at = peephole.Ints("axis", {summed});
  return peephole.ReplaceByNode(node, "Unsqueeze", {sum, at});
}

// (a * x) (b * y) as (x y) * (a b). Of half types scores would overflow that are scaled before.
bool FactorOutOfProduct(Node& node, Peephole& peephole) {
  if (node.output(0)->dtype() != DataType::kFloat || ConstantOf(node.input(0)) ||
      ConstantOf(node.input(1)) || !ShapeOf(node.output(0))) {
    return false;
  }
  std::vector<Value*> operands;
  Value* factor = nullptr;
  double number = 1;
  for (Value* operand : node.inputs()) {
    const ScaledOperand scaled = ScaledOf(operand);
    if (!scaled.factor || ConstantOf(scaled.value)) {
      operands.push_back(operand);
      continue;
    }
    number *= scaled.number;
    const bool both = factor != nullptr;
    factor =
        both ? peephole.graph().AddInitializer(peephole.graph().UniqueName("factor"),
                                               Tensor::Scalar<float>(static_cast<float>(number)))
             : scaled.factor;
    operands.push_back(WithoutFactor(node, scaled, peephole));
  }
  if (!factor) return false;
  Value* product = peephole.AddNode(node, "MatMul", operands);
  // What is said of the product says its name.
  product->producer()->name = std::exchange(node.name, "");
  return peephole.ReplaceByNode(node, "Mul", {product, factor});
}

// exp (x - max (x)) / sum (exp (x - max (x))), also by powers of two.
bool PowersToSoftmax(Node& node, Peephole& peephole) {
  for (int side : {0, 1}) {
    const Power power = PowerOf(node.input(side));
    const Node* powers = power.node;
    const Value* divisor = node.input(1 - side);
    if (node.Is("Mul")) {
      const Node* reciprocal = ProducerIf(divisor, "Reciprocal");
      divisor = reciprocal ? reciprocal->input(0) : nullptr;
    } else if (side == 1) {
      break;
    }
    const Node* sum = ProducerIf(divisor, "ReduceSum");
    if (!powers || !sum || sum->input(0) != powers->output(0)) continue;
    const int64_t axis = KeptAxis(*sum, peephole.contents());
    const Node* less = ProducerIf(power.exponent, "Sub");
    const Node* most = less ? ProducerIf(less->input(1), "ReduceMax") : nullptr;
    if (!most || axis < 0 || most->input(0) != less->input(0) ||
        KeptAxis(*most, peephole.contents()) != axis) {
      continue;
    }
    if (power.scale != 1 && node.output(0)->dtype() != DataType::kFloat) continue;
    if (!SameShapes(node.output(0), less->input(0))) continue;
    return MakeSoftmax(node, peephole, ScaledScores(less->input(0), power.scale, node, peephole),
                       axis);
  }
  return false;
}

bool PowersOfLogSoftmax(Node& node, Peephole& peephole) {
  const Node* logarithm = ProducerIf(node.input(0), "LogSoftmax");
  return logarithm &&
         MakeSoftmax(node, peephole, logarithm->input(0), IntOr(*logarithm, "axis", -1));
}

}  // namespace pagefuse
