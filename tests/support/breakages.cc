// SPDX-License-Identifier: Apache-2.0
// One step that makes another function of a graph.
#include <algorithm>
#include <cmath>

#include "mutation_parts.h"

#include "pagefuse/passes/edit/graph_edit.h"

namespace pagefuse::testing {
namespace {

// Inputs that hold sizes and axes: another one makes no graph at all.
bool SaysShape(const Node& node, int index) {
  return index > 0 &&
         IsOneOf(node, {"Reshape", "Squeeze", "Unsqueeze", "Expand", "Slice", "Split", "ReduceSum",
                        "ReduceMax", "ReduceMin", "ReduceMean", "Pad", "Tile"});
}

// A number of the node's inputs, changed.
bool ChangeNumber(Node& node, Random& random, double (*change)(double)) {
  if (node.num_inputs() == 0 || node.Is("Range")) return false;
  const int index = static_cast<int>(random() % node.num_inputs());
  const std::optional<double> number = ConstantNumber(node.input(index));
  if (!number || SaysShape(node, index) || !std::isfinite(*number)) return false;
  const double changed = change(*number);
  if (changed == *number) return false;
  const Tensor tensor = FilledLike(*ConstantTensor(node.input(index)), changed);
  if (!tensor.defined()) return false;
  node.SetInput(index, Rewriter(node).Constant(tensor));
  return true;
}

bool OffByOne(Node& node, Random& random) {
  return ChangeNumber(node, random, [](double x) { return x == std::floor(x) ? x + 1 : x; });
}

bool OneLess(Node& node, Random& random) {
  return ChangeNumber(node, random, [](double x) { return x == std::floor(x) ? x - 1 : x; });
}

bool TwiceTheNumber(Node& node, Random& random) {
  return ChangeNumber(node, random, [](double x) { return 2 * x; });
}

bool AQuarterMore(Node& node, Random& random) {
  return ChangeNumber(node, random, [](double x) { return 1.25 * x; });
}

bool OtherElementOfConstant(Node& node, Random& random) {
  if (node.num_inputs() == 0) return false;
  const int index = static_cast<int>(random() % node.num_inputs());
  const std::optional<Tensor> tensor = ConstantTensor(node.input(index));
  if (!tensor || tensor->dtype() != DataType::kFloat || tensor->size() < 2) return false;
  auto changed = tensor->Clone();
  if (!changed.ok()) return false;
  float& element = changed->mutable_values<float>()[random() % tensor->size()];
  element = element * 1.5f + 0.25f;
  node.SetInput(index, Rewriter(node).Constant(*changed));
  return true;
}

bool SwapHalves(Node& node, Random& random) {
  if (!node.Is("Concat") || node.num_inputs() < 2) return false;
  const int index = static_cast<int>(random() % (node.num_inputs() - 1));
  Value *first = node.input(index), *second = node.input(index + 1);
  const bool same = first != second && first->shape() && second->shape() &&
                    ProvablyEqual(*first->shape(), *second->shape());
  if (!same || ConstantTensor(first)) return false;
  node.SetInput(index, second);
  node.SetInput(index + 1, first);
  return true;
}

// A window of the same width one element earlier.
bool ShiftSlice(Node& node, Random&) {
  if (!node.Is("Slice") || node.num_inputs() < 3) return false;
  auto begin = ConstantInts(node.input(1)), end = ConstantInts(node.input(2));
  if (!begin || !end || begin->size() != 1 || begin->front() <= 0) return false;
  if (end->front() <= begin->front()) return false;
  Rewriter rewriter(node);
  node.SetInput(1, rewriter.Ints({begin->front() - 1}));
  node.SetInput(2, rewriter.Ints({end->front() - 1}));
  return true;
}

bool SwapParts(Node& node, Random&) {
  if (!node.Is("Split") || node.num_outputs() != 2 || !node.output(0) || !node.output(1)) {
    return false;
  }
  Value *first = node.output(0), *second = node.output(1);
  if (!first->shape() || !second->shape() || !ProvablyEqual(*first->shape(), *second->shape())) {
    return false;
  }
  const std::vector<Use> firsts = first->uses(), seconds = second->uses();
  if (first->is_output() || second->is_output()) return false;
  for (const Use& use : firsts) use.node->SetInput(use.index, second);
  for (const Use& use : seconds) use.node->SetInput(use.index, first);
  return true;
}

bool OtherOp(Node& node, Random&) {
  static constexpr std::pair<std::string_view, std::string_view> kOthers[] = {
      {"Less", "LessOrEqual"},
      {"LessOrEqual", "Less"},
      {"Greater", "GreaterOrEqual"},
      {"GreaterOrEqual", "Greater"},
      {"Round", "Floor"},
      {"Floor", "Ceil"},
      {"Ceil", "Round"},
      {"Max", "Min"},
      {"Min", "Max"},
      {"And", "Or"},
      {"Or", "And"},
      {"ReduceMax", "ReduceMin"},
      {"ReduceSum", "ReduceMax"},
      {"ReduceMean", "ReduceSum"},
      {"Add", "Sub"},
      {"Abs", "Neg"},
      {"Sigmoid", "Tanh"},
      {"Exp", "Abs"}};
  for (const auto& [op, other] : kOthers) {
    if (node.Is(op)) return Rename(node, other);
  }
  return false;
}

bool SwapOperands(Node& node, Random&) {
  const bool ordered = IsOneOf(node, {"Sub", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"});
  if (!ordered || node.input(0) == node.input(1)) return false;
  Value* first = node.input(0);
  node.SetInput(0, node.input(1));
  node.SetInput(1, first);
  return true;
}

bool SwapChoices(Node& node, Random&) {
  if (!node.Is("Where")) return false;
  Value* first = node.input(1);
  node.SetInput(1, node.input(2));
  node.SetInput(2, first);
  return true;
}

// Through a type of fewer bits.
bool RoundBetween(Node& node, Random& random) {
  if (node.num_inputs() == 0 || node.Is("Constant")) return false;
  const int index = static_cast<int>(random() % node.num_inputs());
  Value* value = node.input(index);
  if (!value || value->dtype() != DataType::kFloat || ConstantTensor(value)) return false;
  Rewriter rewriter(node);
  Value* narrow =
      rewriter.Cast(value, random() % 2 == 0 ? DataType::kBfloat16 : DataType::kFloat16);
  node.SetInput(index, rewriter.Cast(narrow, DataType::kFloat));
  return true;
}

bool SkipRounding(Node& node, Random&) {
  // float -> bfloat16 -> float, both casts left out.
  const Value* narrow = node.input(0);
  if (!node.Is("Cast") || node.output(0)->dtype() != DataType::kFloat || !IsFloat(narrow)) {
    return false;
  }
  const Node* first = narrow->producer();
  if (!first || !first->Is("Cast") || first->input(0)->dtype() != DataType::kFloat) return false;
  Rewriter rewriter(node);
  return rewriter.ReplaceWith(rewriter.Add("Identity", {first->input(0)}));
}

// Read at the neighbour's place: rotated along the last axis.
bool RotateLastAxis(Node& node, Random& random) {
  if (node.num_inputs() == 0 || !IsOneOf(node, {"Mul", "Add", "Cast", "Concat"})) return false;
  const int index = static_cast<int>(random() % node.num_inputs());
  Value* value = node.input(index);
  const int rank = RankOf(value);
  const auto size = rank < 1 ? std::nullopt : DimAt(value, rank - 1);
  if (!size || *size < 2 || ConstantTensor(value)) return false;
  std::vector<int64_t> places(*size);
  for (int64_t i = 0; i < *size; ++i) places[i] = (i + 1) % *size;
  Rewriter rewriter(node);
  node.SetInput(index, rewriter.AddInt("Gather", {value, rewriter.Ints(places)}, "axis", rank - 1));
  return true;
}

bool TransposeSquare(Node& node, Random& random) {
  if (node.num_inputs() == 0 || !IsOneOf(node, {"Gather", "Mul", "MatMul"})) return false;
  const int index = static_cast<int>(random() % node.num_inputs());
  Value* value = node.input(index);
  const int rank = RankOf(value);
  if (rank < 2 || !ProvablyEqual((*value->shape())[rank - 1], (*value->shape())[rank - 2])) {
    return false;
  }
  std::vector<int64_t> perm(rank);
  for (int i = 0; i < rank; ++i) perm[i] = i;
  std::swap(perm[rank - 1], perm[rank - 2]);
  node.SetInput(index, Rewriter(node).AddInts("Transpose", {value}, "perm", perm));
  return true;
}

constexpr Mutation kBreakages[] = {
    {"off by one", OffByOne},
    {"one less", OneLess},
    {"twice the number", TwiceTheNumber},
    {"a quarter more", AQuarterMore},
    {"other element of a constant", OtherElementOfConstant},
    {"swapped halves", SwapHalves},
    {"shifted slice", ShiftSlice},
    {"swapped parts", SwapParts},
    {"other op", OtherOp},
    {"swapped operands", SwapOperands},
    {"swapped choices", SwapChoices},
    {"rounding between", RoundBetween},
    {"rounding left out", SkipRounding},
    {"last axis rotated", RotateLastAxis},
    {"square transposed", TransposeSquare},
};

}  // namespace

std::span<const Mutation> Breakages() { return kBreakages; }

}  // namespace pagefuse::testing
