// SPDX-License-Identifier: Apache-2.0
// Other forms of what moves elements and changes none: views, casts there and back, constants.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "mutation_parts.h"

#include "pagefuse/passes/edit/graph_edit.h"

namespace pagefuse::testing {
namespace {

// An input that carries data, not the sizes or axes of a view; -1 if there is none.
int DataInput(const Node& node, Random& random) {
  static constexpr std::string_view kFirstOnly[] = {
      "Reshape", "Squeeze",   "Unsqueeze", "Expand",    "Slice",
      "Split",   "ReduceSum", "ReduceMax", "ReduceMin", "ReduceMean"};
  if (node.num_inputs() == 0 || node.Is("Constant")) return -1;
  const bool first = std::ranges::any_of(kFirstOnly, [&](auto op) { return node.Is(op); });
  const int index = first ? 0 : static_cast<int>(random() % node.num_inputs());
  return node.input(index) ? index : -1;
}

bool InsertIdentity(Node& node, Random& random) {
  const int index = DataInput(node, random);
  if (index < 0) return false;
  node.SetInput(index, Rewriter(node).Add("Identity", {node.input(index)}));
  return true;
}

bool TransposeTwice(Node& node, Random& random) {
  const int index = DataInput(node, random);
  const int rank = index < 0 ? -1 : RankOf(node.input(index));
  if (rank < 2) return false;
  std::vector<int64_t> there(rank), back(rank);
  std::iota(there.begin(), there.end(), 0);
  std::rotate(there.begin(), there.begin() + 1 + random() % (rank - 1), there.end());
  for (int i = 0; i < rank; ++i) back[there[i]] = i;
  Rewriter rewriter(node);
  Value* turned = rewriter.AddInts("Transpose", {node.input(index)}, "perm", there);
  node.SetInput(index, rewriter.AddInts("Transpose", {turned}, "perm", back));
  return true;
}

bool UnsqueezeAndSqueeze(Node& node, Random& random) {
  const int index = DataInput(node, random);
  const int rank = index < 0 ? -1 : RankOf(node.input(index));
  if (rank < 0) return false;
  Rewriter rewriter(node);
  Value* axis = rewriter.Ints({static_cast<int64_t>(random() % (rank + 1))});
  Value* longer = rewriter.Add("Unsqueeze", {node.input(index), axis});
  node.SetInput(index, rewriter.Add("Squeeze", {longer, axis}));
  return true;
}

bool ReshapeThereAndBack(Node& node, Random& random) {
  const int index = DataInput(node, random);
  const auto dims = index < 0 ? std::nullopt : ReshapeTarget(node.input(index));
  if (!dims) return false;
  Rewriter rewriter(node);
  Value* flat = rewriter.Add("Reshape", {node.input(index), rewriter.Ints({-1})});
  node.SetInput(index, rewriter.Add("Reshape", {flat, rewriter.Ints(*dims)}));
  return true;
}

bool ReshapeByWayOfOneAxis(Node& node, Random&) {
  const auto dims = ReshapeTarget(node.output(0));
  if (!IsOneOf(node, {"Reshape", "Squeeze", "Unsqueeze", "Flatten"}) || !dims) return false;
  Rewriter rewriter(node);
  Value* flat = rewriter.Add("Reshape", {node.input(0), rewriter.Ints({-1})});
  return rewriter.ReplaceWith(rewriter.Add("Reshape", {flat, rewriter.Ints(*dims)}));
}

bool ViewAsReshape(Node& node, Random&) {
  const auto dims = ReshapeTarget(node.output(0));
  if (!IsOneOf(node, {"Squeeze", "Unsqueeze", "Flatten"}) || !dims) return false;
  Rewriter rewriter(node);
  return rewriter.ReplaceWith(rewriter.Add("Reshape", {node.input(0), rewriter.Ints(*dims)}));
}

bool UnsqueezeStepByStep(Node& node, Random&) {
  auto axes = ConstantInts(node.input(1));
  if (!node.Is("Unsqueeze") || !axes || axes->size() < 2) return false;
  const int rank = RankOf(node.output(0));
  if (rank < 0) return false;
  for (int64_t& axis : *axes) axis = NormalAxis(axis, rank);
  std::ranges::sort(*axes);
  Rewriter rewriter(node);
  Value* value = node.input(0);
  for (int64_t axis : *axes) value = rewriter.Add("Unsqueeze", {value, rewriter.Ints({axis})});
  return rewriter.ReplaceWith(value);
}

bool ConcatInSteps(Node& node, Random&) {
  if (!node.Is("Concat") || node.num_inputs() < 3) return false;
  Rewriter rewriter(node);
  const int64_t axis = IntOr(node, "axis", 0);
  std::vector<Value*> rest(node.inputs().begin() + 1, node.inputs().end());
  Value* tail = rewriter.AddInt("Concat", rest, "axis", axis);
  return rewriter.ReplaceWith(rewriter.AddInt("Concat", {node.input(0), tail}, "axis", axis));
}

// A type that holds all numbers of another.
DataType WiderType(DataType type) {
  switch (type) {
    case DataType::kFloat:
      return DataType::kDouble;
    case DataType::kFloat16:
    case DataType::kBfloat16:
      return DataType::kFloat;
    case DataType::kInt32:
    case DataType::kUint32:
      return DataType::kInt64;
    case DataType::kUint8:
    case DataType::kInt8:
    case DataType::kBool:
      return DataType::kInt32;
    case DataType::kUint16:
      return DataType::kUint32;
    default:
      return DataType::kUndefined;
  }
}

bool CastThereAndBack(Node& node, Random& random) {
  const int index = DataInput(node, random);
  if (index < 0) return false;
  const DataType type = node.input(index)->dtype();
  if (WiderType(type) == DataType::kUndefined) return false;
  Rewriter rewriter(node);
  Value* wide = rewriter.Cast(node.input(index), WiderType(type));
  node.SetInput(index, rewriter.Cast(wide, type));
  return true;
}

// --- constants ---

bool ConstantAsNode(Node& node, Random& random) {
  if (node.num_inputs() == 0) return false;
  const int index = static_cast<int>(random() % node.num_inputs());
  const std::optional<Tensor> tensor = ConstantTensor(node.input(index));
  if (!tensor) return false;
  Rewriter rewriter(node);
  if (!node.input(index)->producer()) {
    Value* constant = rewriter.Add("Constant", {});
    constant->producer()->SetAttribute("value", MakeAttribute(*tensor));
    node.SetInput(index, constant);
    return true;
  }
  node.SetInput(index, rewriter.Constant(*tensor));
  return true;
}

// Integers by way of int32, floats that are integers by way of int64, other floats by double.
bool ConstantAsCast(Node& node, Random& random) {
  if (node.num_inputs() == 0) return false;
  const int index = static_cast<int>(random() % node.num_inputs());
  const std::optional<double> number = ConstantNumber(node.input(index));
  if (!number || std::abs(*number) > 1e9) return false;
  const Tensor tensor = *ConstantTensor(node.input(index));
  const bool integer = *number == std::floor(*number);
  DataType other = integer ? DataType::kInt64 : DataType::kDouble;
  if (tensor.dtype() == DataType::kInt64) other = DataType::kInt32;
  if (!integer && tensor.dtype() != DataType::kFloat) return false;
  const auto stand_in = Tensor::Allocate(other, tensor.dims());
  if (!stand_in.ok()) return false;
  Rewriter rewriter(node);
  Value* constant =
      rewriter.Constant(other == DataType::kDouble ? Tensor::Of<double>(tensor.dims(), {*number})
                                                   : FilledLike(*stand_in, *number));
  node.SetInput(index, rewriter.Cast(constant, tensor.dtype()));
  return true;
}

// A list of integers as a Concat of its parts.
bool IntsAsConcat(Node& node, Random& random) {
  if (node.num_inputs() == 0) return false;
  const int index = static_cast<int>(random() % node.num_inputs());
  const std::optional<Tensor> tensor = ConstantTensor(node.input(index));
  if (!tensor || tensor->dtype() != DataType::kInt64 || tensor->rank() != 1 || tensor->size() < 2) {
    return false;
  }
  const auto values = tensor->values<int64_t>();
  Rewriter rewriter(node);
  Value* first = rewriter.Ints({values.front()});
  Value* rest = rewriter.Ints({values.begin() + 1, values.end()});
  node.SetInput(index, rewriter.AddInt("Concat", {first, rest}, "axis", 0));
  return true;
}

constexpr Mutation kMutations[] = {
    {"identity", InsertIdentity},
    {"transpose twice", TransposeTwice},
    {"unsqueeze and squeeze", UnsqueezeAndSqueeze},
    {"reshape there and back", ReshapeThereAndBack},
    {"reshape by way of one axis", ReshapeByWayOfOneAxis},
    {"view as reshape", ViewAsReshape},
    {"unsqueeze step by step", UnsqueezeStepByStep},
    {"concat in steps", ConcatInSteps},
    {"cast there and back", CastThereAndBack},
    {"constant as node", ConstantAsNode},
    {"constant as cast", ConstantAsCast},
    {"ints as concat", IntsAsConcat},
};

}  // namespace

std::span<const Mutation> ViewVariants() { return kMutations; }

}  // namespace pagefuse::testing
