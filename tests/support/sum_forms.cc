// SPDX-License-Identifier: Apache-2.0
// Other forms of reductions, products and softmaxes.
#include <cmath>
#include <numeric>

#include "mutation_parts.h"

#include "pagefuse/passes/edit/graph_edit.h"

namespace pagefuse::testing {
namespace {

// A reduction of one axis of floats, in the form that takes its axes as an input.
struct Reduced {
  int rank = 0;
  int64_t axis = 0;
  bool keeps = true;
  bool last() const { return axis == rank - 1; }
};

std::optional<Reduced> ReadReduction(const Node& node) {
  const auto axes = ConstantInts(node.input(1));
  if (!axes || axes->size() != 1 || node.input(0)->dtype() != DataType::kFloat) return std::nullopt;
  Reduced reduced = {.rank = RankOf(node.input(0))};
  if (reduced.rank < 1) return std::nullopt;
  reduced.axis = NormalAxis(axes->front(), reduced.rank);
  reduced.keeps = IntOr(node, "keepdims", 1) != 0;
  return reduced;
}

// `value` has the reduced axis with length 1.
bool ReplaceKept(Rewriter& rewriter, Value* value, const Reduced& reduced) {
  if (!reduced.keeps) value = rewriter.Add("Squeeze", {value, rewriter.Ints({reduced.axis})});
  return rewriter.ReplaceWith(value);
}

Value* Column(Rewriter& rewriter, int64_t size, float number) {
  return rewriter.Constant(Tensor::Of<float>({size, 1}, std::vector<float>(size, number)));
}

bool SumAsProductWithOnes(Node& node, Random&) {
  const bool mean = node.Is("ReduceMean");
  if (!mean && !node.Is("ReduceSum")) return false;
  const auto reduced = ReadReduction(node);
  if (!reduced || !reduced->last() || reduced->rank < 2) return false;
  const auto size = DimAt(node.input(0), reduced->axis);
  if (!size) return false;
  Rewriter rewriter(node);
  const float weight = mean ? 1.0f / static_cast<float>(*size) : 1.0f;
  Value* sums = rewriter.Add("MatMul", {node.input(0), Column(rewriter, *size, weight)});
  return ReplaceKept(rewriter, sums, *reduced);
}

std::string Letters(int count) {
  std::string letters(count, 'a');
  std::iota(letters.begin(), letters.end(), 'a');
  return letters;
}

Value* Einsum(Rewriter& rewriter, std::vector<Value*> inputs, const std::string& equation) {
  Value* result = rewriter.Add("Einsum", std::move(inputs));
  result->producer()->SetAttribute("equation", MakeAttribute(equation));
  return result;
}

// The sum of the products of `factors`, all of one shape.
bool ReplaceByEinsum(Node& node, const Reduced& reduced, const std::vector<Value*>& factors) {
  const std::string from = Letters(reduced.rank);
  std::string to = from;
  to.erase(static_cast<size_t>(reduced.axis), 1);
  const std::string terms = factors.size() == 1 ? from : from + "," + from;
  Rewriter rewriter(node);
  Value* sums = Einsum(rewriter, factors, terms + "->" + to);
  if (reduced.keeps) sums = rewriter.Add("Unsqueeze", {sums, rewriter.Ints({reduced.axis})});
  return rewriter.ReplaceWith(sums);
}

bool SumAsEinsum(Node& node, Random&) {
  const auto reduced = node.Is("ReduceSum") ? ReadReduction(node) : std::nullopt;
  return reduced && ReplaceByEinsum(node, *reduced, {node.input(0)});
}

// Products that are summed, as one Einsum.
bool SumOfProductsAsEinsum(Node& node, Random&) {
  const auto reduced = node.Is("ReduceSum") ? ReadReduction(node) : std::nullopt;
  const Node* product = reduced ? node.input(0)->producer() : nullptr;
  if (!product || !product->Is("Mul")) return false;
  for (const Value* input : product->inputs()) {
    if (RankOf(input) != reduced->rank || !input->shape() ||
        !ProvablyEqual(*input->shape(), *node.input(0)->shape())) {
      return false;
    }
  }
  return ReplaceByEinsum(node, *reduced, {product->input(0), product->input(1)});
}

bool IsSquare(const Node* node) {
  if (!node) return false;
  if (node->Is("Mul")) return node->input(0) == node->input(1);
  return node->Is("Pow") && ConstantNumber(node->input(1)) == 2.0;
}

bool SquaresInOneReduction(Node& node, Random&) {
  const bool mean = node.Is("ReduceMean");
  if (!mean && !node.Is("ReduceSum")) return false;
  const auto reduced = ReadReduction(node);
  if (!reduced || !IsSquare(node.input(0)->producer())) return false;
  const auto size = DimAt(node.input(0), reduced->axis);
  if (mean && !size) return false;
  Rewriter rewriter(node);
  Value* x = node.input(0)->producer()->input(0);
  Value* sum = rewriter.AddInt("ReduceSumSquare", {x, node.input(1)}, "keepdims", reduced->keeps);
  if (mean) {
    Value* count = rewriter.Constant(Tensor::Scalar<float>(static_cast<float>(*size)));
    sum = rewriter.Add("Div", {sum, count});
  }
  return rewriter.ReplaceWith(sum);
}

bool LargestMagnitudeOfBothEnds(Node& node, Random&) {
  const Node* magnitude = node.Is("ReduceMax") ? node.input(0)->producer() : nullptr;
  // Before opset 18 axes are an attribute.
  if (!magnitude || !magnitude->Is("Abs") || node.num_inputs() < 2) return false;
  const int64_t keeps = IntOr(node, "keepdims", 1);
  Rewriter rewriter(node);
  std::vector<Value*> inputs(node.inputs().begin(), node.inputs().end());
  inputs[0] = magnitude->input(0);
  Value* most = rewriter.AddInt("ReduceMax", inputs, "keepdims", keeps);
  Value* least = rewriter.AddInt("ReduceMin", inputs, "keepdims", keeps);
  return rewriter.ReplaceWith(rewriter.Add("Max", {most, rewriter.Add("Neg", {least})}));
}

bool MaxAsTopK(Node& node, Random&) {
  const auto reduced = node.Is("ReduceMax") ? ReadReduction(node) : std::nullopt;
  if (!reduced) return false;
  Rewriter rewriter(node);
  return ReplaceKept(rewriter, rewriter.TopOne(node.input(0), reduced->axis), *reduced);
}

// Reduced along the first axis of the transposed value.
bool ReduceTransposed(Node& node, Random&) {
  if (!IsOneOf(node, {"ReduceSum", "ReduceMax", "ReduceMean"})) return false;
  const auto reduced = ReadReduction(node);
  if (!reduced || !reduced->last() || reduced->rank < 2) return false;
  std::vector<int64_t> front(reduced->rank), back(reduced->rank);
  std::iota(front.begin(), front.end(), -1);
  front[0] = reduced->rank - 1;
  for (int i = 0; i < reduced->rank; ++i) back[front[i]] = i;
  Rewriter rewriter(node);
  Value* turned = rewriter.AddInts("Transpose", {node.input(0)}, "perm", front);
  Value* result =
      rewriter.AddInt(node.op_type(), {turned, rewriter.Ints({0})}, "keepdims", reduced->keeps);
  if (reduced->keeps) result = rewriter.AddInts("Transpose", {result}, "perm", back);
  return rewriter.ReplaceWith(result);
}

// --- products ---

bool IsFloatProduct(const Node& node) {
  return node.Is("MatMul") && node.input(0)->dtype() == DataType::kFloat &&
         RankOf(node.input(0)) >= 2 && RankOf(node.input(0)) == RankOf(node.input(1));
}

bool MatMulAsEinsum(Node& node, Random&) {
  if (!IsFloatProduct(node)) return false;
  const int rank = RankOf(node.input(0));
  for (int i = 0; i < rank - 2; ++i) {
    if (!ProvablyEqual((*node.input(0)->shape())[i], (*node.input(1)->shape())[i])) return false;
  }
  const std::string lead = Letters(rank - 2);
  Rewriter rewriter(node);
  return rewriter.ReplaceWith(
      Einsum(rewriter, {node.input(0), node.input(1)}, lead + "ij," + lead + "jk->" + lead + "ik"));
}

// `value` of this rank with its last two axes exchanged.
Value* LastTransposed(Rewriter& rewriter, Value* value, int rank) {
  std::vector<int64_t> perm(rank);
  std::iota(perm.begin(), perm.end(), 0);
  std::swap(perm[rank - 1], perm[rank - 2]);
  return rewriter.AddInts("Transpose", {value}, "perm", perm);
}

bool MatMulOfTransposes(Node& node, Random&) {
  if (!IsFloatProduct(node)) return false;
  const int rank = RankOf(node.input(0));
  Rewriter rewriter(node);
  Value* turned = rewriter.Add("MatMul", {LastTransposed(rewriter, node.input(1), rank),
                                          LastTransposed(rewriter, node.input(0), rank)});
  return rewriter.ReplaceWith(LastTransposed(rewriter, turned, rank));
}

bool MatMulAsSum(Node& node, Random&) {
  if (!IsFloatProduct(node)) return false;
  const int rank = RankOf(node.input(0));
  Rewriter rewriter(node);
  Value* rows = rewriter.Add("Unsqueeze", {node.input(0), rewriter.Ints({rank - 1})});
  Value* columns = rewriter.Add(
      "Unsqueeze", {LastTransposed(rewriter, node.input(1), rank), rewriter.Ints({rank - 2})});
  Value* products = rewriter.Add("Mul", {rows, columns});
  return rewriter.ReplaceWith(
      rewriter.AddInt("ReduceSum", {products, rewriter.Ints({-1})}, "keepdims", 0));
}

// As a batch of three axes, as TorchScript's bmm.
bool MatMulOfThreeAxes(Node& node, Random&) {
  if (!IsFloatProduct(node) || RankOf(node.input(0)) != 4) return false;
  const auto whole = ReshapeTarget(node.output(0));
  if (!whole) return false;
  Rewriter rewriter(node);
  std::vector<Value*> flat;
  for (Value* input : node.inputs()) {
    for (int i = 0; i < 2; ++i) {
      if (!ProvablyEqual((*input->shape())[i], (*node.output(0)->shape())[i])) return false;
    }
    const auto rows = DimAt(input, 2), columns = DimAt(input, 3);
    if (!rows || !columns) return false;
    flat.push_back(rewriter.Add("Reshape", {input, rewriter.Ints({-1, *rows, *columns})}));
  }
  Value* product = rewriter.Add("MatMul", flat);
  return rewriter.ReplaceWith(rewriter.Add("Reshape", {product, rewriter.Ints(*whole)}));
}

// Head by head, for heads that are few.
bool MatMulByHeads(Node& node, Random&) {
  if (!IsFloatProduct(node) || RankOf(node.input(0)) < 3) return false;
  constexpr int64_t kFew = 4;
  const int64_t axis = RankOf(node.input(0)) - 3;
  const auto heads = DimAt(node.input(0), axis);
  if (!heads || *heads < 2 || *heads > kFew || DimAt(node.input(1), axis) != heads) return false;
  Rewriter rewriter(node);
  const auto count = static_cast<int>(*heads);
  Value* ones = rewriter.Ints(std::vector<int64_t>(count, 1));
  const auto rows = rewriter.Split(node.input(0), axis, ones, count);
  const auto columns = rewriter.Split(node.input(1), axis, ones, count);
  std::vector<Value*> products;
  for (int i = 0; i < count; ++i) {
    products.push_back(rewriter.Add("MatMul", {rows[i], columns[i]}));
  }
  return rewriter.ReplaceWith(rewriter.AddInt("Concat", products, "axis", axis));
}

// (a b) c as (a c) b, and as a (b c).
bool ScaleBeforeProduct(Node& node, Random& random) {
  if (!node.Is("Mul") || !ConstantNumber(node.input(1)) || RankOf(node.input(1)) != 0) return false;
  const Node* product = node.input(0)->producer();
  if (!product || !product->Is("MatMul") || node.input(0)->uses().size() != 1) return false;
  std::vector<Value*> factors(product->inputs().begin(), product->inputs().end());
  const size_t scaled = random() % 2;
  Rewriter rewriter(node);
  factors[scaled] = rewriter.Add("Mul", {factors[scaled], node.input(1)});
  return rewriter.ReplaceWith(rewriter.Add("MatMul", factors));
}

// --- softmaxes ---

bool SoftmaxWrittenOut(Node& node, Random& random) {
  if (!node.Is("Softmax") || node.input(0)->dtype() != DataType::kFloat) return false;
  Rewriter rewriter(node);
  Value* axis = rewriter.Ints({IntOr(node, "axis", -1)});
  Value* most = rewriter.Add("ReduceMax", {node.input(0), axis});
  Value* powers = rewriter.Add("Exp", {rewriter.Add("Sub", {node.input(0), most})});
  Value* sum = rewriter.Add("ReduceSum", {powers, axis});
  if (random() % 2 == 0) return rewriter.ReplaceWith(rewriter.Add("Div", {powers, sum}));
  return rewriter.ReplaceWith(rewriter.Add("Mul", {powers, rewriter.Add("Reciprocal", {sum})}));
}

bool SoftmaxByLogarithm(Node& node, Random&) {
  if (!node.Is("Softmax") || node.input(0)->dtype() != DataType::kFloat) return false;
  Rewriter rewriter(node);
  Value* logarithm =
      rewriter.AddInt("LogSoftmax", {node.input(0)}, "axis", IntOr(node, "axis", -1));
  return rewriter.ReplaceWith(rewriter.Add("Exp", {logarithm}));
}

bool SoftmaxTransposed(Node& node, Random&) {
  const int rank = RankOf(node.input(0));
  if (!node.Is("Softmax") || rank < 2) return false;
  if (NormalAxis(IntOr(node, "axis", -1), rank) != rank - 1) return false;
  Rewriter rewriter(node);
  Value* turned = LastTransposed(rewriter, node.input(0), rank);
  Value* softmax = rewriter.AddInt("Softmax", {turned}, "axis", rank - 2);
  return rewriter.ReplaceWith(LastTransposed(rewriter, softmax, rank));
}

constexpr Mutation kMutations[] = {
    {"sum as product with ones", SumAsProductWithOnes},
    {"sum as einsum", SumAsEinsum},
    {"sum of products as einsum", SumOfProductsAsEinsum},
    {"squares in one reduction", SquaresInOneReduction},
    {"largest magnitude of both ends", LargestMagnitudeOfBothEnds},
    {"max as topk", MaxAsTopK},
    {"reduce transposed", ReduceTransposed},
    {"matmul as einsum", MatMulAsEinsum},
    {"matmul of transposes", MatMulOfTransposes},
    {"matmul as sum", MatMulAsSum},
    {"matmul of three axes", MatMulOfThreeAxes},
    {"matmul by heads", MatMulByHeads},
    {"scale before product", ScaleBeforeProduct},
    {"softmax written out", SoftmaxWrittenOut},
    {"softmax by logarithm", SoftmaxByLogarithm},
    {"softmax transposed", SoftmaxTransposed},
};

}  // namespace

std::span<const Mutation> SumVariants() { return kMutations; }

}  // namespace pagefuse::testing
