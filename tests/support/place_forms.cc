// SPDX-License-Identifier: Apache-2.0
// Other forms of places: strided slices and pairs, joined and repeated parts, arithmetic of
// blocks, writes by block and place, and integers in other types.
#include <algorithm>
#include <bit>
#include <numeric>

#include "mutation_parts.h"

#include "pagefuse/passes/edit/graph_edit.h"

namespace pagefuse::testing {
namespace {

// A Slice of the last axis in steps of two, from 0 or 1, of an even size.
std::optional<int64_t> FirstOfPairs(const Node& node) {
  if (!node.Is("Slice") || !node.input(4)) return std::nullopt;
  const auto begin = ConstantInts(node.input(1)), axes = ConstantInts(node.input(3));
  const auto steps = ConstantInts(node.input(4));
  if (!begin || !axes || !steps || *steps != std::vector<int64_t>{2}) return std::nullopt;
  const int rank = RankOf(node.input(0));
  const auto size = DimAt(node.input(0), rank - 1), half = DimAt(node.output(0), rank - 1);
  if (NormalAxis(axes->front(), rank) != rank - 1 || !size || !half || *half * 2 != *size ||
      begin->front() < 0 || begin->front() > 1) {
    return std::nullopt;
  }
  return begin->front();
}

// The dims of a value as Reshape takes them, with the last replaced.
std::optional<std::vector<int64_t>> TargetWithLast(const Value* value, std::vector<int64_t> last) {
  auto target = ReshapeTarget(value);
  if (!target || target->empty()) return std::nullopt;
  target->pop_back();
  target->insert(target->end(), last.begin(), last.end());
  return target;
}

bool StridesAsPairs(Node& node, Random& random) {
  const auto first = FirstOfPairs(node);
  const auto half = first ? DimAt(node.output(0), RankOf(node.output(0)) - 1) : std::nullopt;
  const auto pairs = half ? TargetWithLast(node.input(0), {*half, 2}) : std::nullopt;
  if (!pairs) return false;
  Rewriter rewriter(node);
  Value* paired = rewriter.Add("Reshape", {node.input(0), rewriter.Ints(*pairs)});
  Value* last = rewriter.Ints({-1});
  switch (random() % 3) {
    case 0: {
      Value* index = rewriter.Constant(Tensor::Scalar<int64_t>(*first));
      return rewriter.ReplaceWith(rewriter.AddInt("Gather", {paired, index}, "axis", -1));
    }
    case 1: {
      const auto parts = rewriter.Split(paired, -1, rewriter.Ints({1, 1}), 2);
      return rewriter.ReplaceWith(rewriter.Add("Squeeze", {parts[*first], last}));
    }
    default: {
      Value* one = rewriter.Add(
          "Slice", {paired, rewriter.Ints({*first}), rewriter.Ints({*first + 1}), last});
      return rewriter.ReplaceWith(rewriter.Add("Squeeze", {one, last}));
    }
  }
}

bool StridesAsGather(Node& node, Random&) {
  const auto first = FirstOfPairs(node);
  if (!first) return false;
  std::vector<int64_t> places(*DimAt(node.output(0), RankOf(node.output(0)) - 1));
  for (size_t i = 0; i < places.size(); ++i) places[i] = 2 * static_cast<int64_t>(i) + *first;
  Rewriter rewriter(node);
  return rewriter.ReplaceWith(
      rewriter.AddInt("Gather", {node.input(0), rewriter.Ints(places)}, "axis", -1));
}

// Rows times a matrix that picks every second column.
bool StridesAsProduct(Node& node, Random&) {
  const auto first = FirstOfPairs(node);
  if (!first || node.input(0)->dtype() != DataType::kFloat) return false;
  const int64_t half = *DimAt(node.output(0), RankOf(node.output(0)) - 1);
  std::vector<float> picks(2 * half * half, 0.0f);
  for (int64_t i = 0; i < half; ++i) picks[(2 * i + *first) * half + i] = 1.0f;
  Rewriter rewriter(node);
  Value* matrix = rewriter.Constant(Tensor::Of<float>({2 * half, half}, picks));
  return rewriter.ReplaceWith(rewriter.Add("MatMul", {node.input(0), matrix}));
}

// --- joined parts ---

bool ConcatAsScatter(Node& node, Random&) {
  if (!node.Is("Concat") || node.num_inputs() != 2 || !IsFloat(node.output(0))) return false;
  const int rank = RankOf(node.output(0));
  const auto axis = static_cast<int>(NormalAxis(IntOr(node, "axis", 0), rank));
  const auto first = DimAt(node.input(0), axis), all = DimAt(node.output(0), axis);
  if (rank < 2 || axis != rank - 1 || !first || !all) return false;
  // The last axis first, two assignments, and back.
  std::vector<int64_t> front(rank), back(rank);
  std::iota(front.begin(), front.end(), -1);
  front[0] = rank - 1;
  for (int i = 0; i < rank; ++i) back[front[i]] = i;
  Rewriter rewriter(node);
  std::vector<Value*> parts;
  for (Value* input : node.inputs()) {
    parts.push_back(rewriter.AddInts("Transpose", {input}, "perm", front));
  }
  Value* dims = rewriter.AddInt("Shape", {parts[0]}, "start", 1);
  Value* whole = rewriter.AddInt("Concat", {rewriter.Ints({*all}), dims}, "axis", 0);
  const auto zero = Tensor::Allocate(node.output(0)->dtype(), {1});
  if (!zero.ok()) return false;
  Value* filled = rewriter.Add("ConstantOfShape", {whole});
  filled->producer()->SetAttribute("value", MakeAttribute(FilledLike(*zero, 0)));
  int64_t begin = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    std::vector<int64_t> places(i == 0 ? *first : *all - *first);
    std::iota(places.begin(), places.end(), begin);
    begin += static_cast<int64_t>(places.size());
    const auto count = static_cast<int64_t>(places.size());
    Value* index = rewriter.Constant(Tensor::Of<int64_t>({count, 1}, places));
    filled = rewriter.Add("ScatterND", {filled, index, parts[i]});
  }
  return rewriter.ReplaceWith(rewriter.AddInts("Transpose", {filled}, "perm", back));
}

bool ConcatAsPaddedSum(Node& node, Random&) {
  if (!node.Is("Concat") || node.num_inputs() != 2 || node.output(0)->dtype() != DataType::kFloat) {
    return false;
  }
  const int rank = RankOf(node.output(0));
  const auto axis = static_cast<int>(NormalAxis(IntOr(node, "axis", 0), rank));
  const auto first = DimAt(node.input(0), axis), second = DimAt(node.input(1), axis);
  if (rank < 1 || !first || !second) return false;
  Rewriter rewriter(node);
  std::vector<int64_t> behind(2 * rank, 0), before(2 * rank, 0);
  behind[rank + axis] = *second;
  before[axis] = *first;
  return rewriter.ReplaceWith(
      rewriter.Add("Add", {rewriter.Add("Pad", {node.input(0), rewriter.Ints(behind)}),
                           rewriter.Add("Pad", {node.input(1), rewriter.Ints(before)})}));
}

// Pairs that are stacked on a last axis and flattened, as halves that a transpose interleaves or a
// Gather puts in place.
bool StackAsInterleavedHalves(Node& node, Random& random) {
  const Node* stack = node.Is("Reshape") ? node.input(0)->producer() : nullptr;
  if (!stack || !stack->Is("Concat") || stack->num_inputs() != 2) return false;
  const int rank = RankOf(node.input(0));
  const auto half = DimAt(node.input(0), rank - 2), pair = DimAt(node.input(0), rank - 1);
  if (rank < 3 || RankOf(node.output(0)) != rank - 1 || pair != 2 || !half ||
      DimAt(node.output(0), rank - 2) != 2 * *half ||
      NormalAxis(IntOr(*stack, "axis", 0), rank) != rank - 1) {
    return false;
  }
  const auto target = ReshapeTarget(node.output(0));
  const auto rows = target ? TargetWithLast(node.output(0), {2, *half}) : std::nullopt;
  if (!rows) return false;
  Rewriter rewriter(node);
  std::vector<Value*> parts;
  for (Value* input : stack->inputs()) {
    parts.push_back(rewriter.Add("Squeeze", {input, rewriter.Ints({-1})}));
  }
  Value* halves = rewriter.AddInt("Concat", parts, "axis", -1);
  if (random() % 2 == 0) {
    std::vector<int64_t> places(2 * *half);
    for (int64_t i = 0; i < 2 * *half; ++i) places[i] = i / 2 + (i % 2) * *half;
    return rewriter.ReplaceWith(
        rewriter.AddInt("Gather", {halves, rewriter.Ints(places)}, "axis", -1));
  }
  std::vector<int64_t> perm(rank);
  std::iota(perm.begin(), perm.end(), 0);
  std::swap(perm[rank - 1], perm[rank - 2]);
  Value* two = rewriter.Add("Reshape", {halves, rewriter.Ints(*rows)});
  Value* turned = rewriter.AddInts("Transpose", {two}, "perm", perm);
  return rewriter.ReplaceWith(rewriter.Add("Reshape", {turned, rewriter.Ints(*target)}));
}

// --- repeated parts ---

bool ExpandOtherwise(Node& node, Random& random) {
  if (!node.Is("Expand") || !node.input(0)->shape() || !node.output(0)->shape()) return false;
  const bool number = node.input(0)->dtype() == DataType::kFloat || IsSignedInteger(node.input(0));
  if (!number) return false;
  Rewriter rewriter(node);
  Value* filled = rewriter.Add("ConstantOfShape", {node.input(1)});
  const auto one = Tensor::Allocate(node.input(0)->dtype(), {1});
  if (!one.ok()) return false;
  const bool product = random() % 2 == 0;
  filled->producer()->SetAttribute("value", MakeAttribute(FilledLike(*one, product ? 1 : 0)));
  return rewriter.ReplaceWith(rewriter.Add(product ? "Mul" : "Add", {node.input(0), filled}));
}

bool ExpandAsTile(Node& node, Random&) {
  if (!node.Is("Expand")) return false;
  const int rank = RankOf(node.input(0));
  if (rank < 0 || rank != RankOf(node.output(0))) return false;
  std::vector<int64_t> repeats(rank, 1);
  for (int i = 0; i < rank; ++i) {
    if (ProvablyEqual((*node.input(0)->shape())[i], (*node.output(0)->shape())[i])) continue;
    const auto times = DimAt(node.output(0), i);
    if (DimAt(node.input(0), i) != 1 || !times) return false;
    repeats[i] = *times;
  }
  Rewriter rewriter(node);
  return rewriter.ReplaceWith(rewriter.Add("Tile", {node.input(0), rewriter.Ints(repeats)}));
}

// [.., 1, ..] -> [.., n, ..] by an index of zeros.
bool ExpandAsGather(Node& node, Random&) {
  if (!node.Is("Expand")) return false;
  const int rank = RankOf(node.input(0));
  if (rank < 1 || rank != RankOf(node.output(0))) return false;
  int64_t axis = -1, count = 0;
  for (int i = 0; i < rank; ++i) {
    if (ProvablyEqual((*node.input(0)->shape())[i], (*node.output(0)->shape())[i])) continue;
    const auto size = DimAt(node.output(0), i);
    if (axis >= 0 || DimAt(node.input(0), i) != 1 || !size) return false;
    axis = i;
    count = *size;
  }
  if (axis < 0) return false;
  Rewriter rewriter(node);
  Value* zeros = rewriter.Ints(std::vector<int64_t>(count, 0));
  return rewriter.ReplaceWith(rewriter.AddInt("Gather", {node.input(0), zeros}, "axis", axis));
}

// Unsqueeze, Expand, Reshape as a Gather of each head several times.
bool RepeatAsGather(Node& node, Random&) {
  const Node* expand = node.Is("Reshape") ? node.input(0)->producer() : nullptr;
  const Node* longer = expand && expand->Is("Expand") ? expand->input(0)->producer() : nullptr;
  if (!longer || !longer->Is("Unsqueeze")) return false;
  const auto axes = ConstantInts(longer->input(1));
  const int rank = RankOf(expand->output(0));
  if (!axes || axes->size() != 1 || RankOf(node.output(0)) != rank - 1) return false;
  const int64_t axis = NormalAxis(axes->front(), rank);
  const auto heads = DimAt(expand->output(0), axis - 1), times = DimAt(expand->output(0), axis);
  if (axis < 1 || !heads || !times || DimAt(node.output(0), axis - 1) != *heads * *times) {
    return false;
  }
  std::vector<int64_t> places(*heads * *times);
  for (size_t i = 0; i < places.size(); ++i) places[i] = static_cast<int64_t>(i) / *times;
  Rewriter rewriter(node);
  return rewriter.ReplaceWith(
      rewriter.AddInt("Gather", {longer->input(0), rewriter.Ints(places)}, "axis", axis - 1));
}

// --- arithmetic of places ---

bool IsLong(const Value* value) { return value && value->dtype() == DataType::kInt64; }

bool PlacesInInt32(Node& node, Random&) {
  if (!IsOneOf(node, {"Add", "Sub", "Mul", "Div", "Mod"}) || !IsLong(node.output(0))) return false;
  Rewriter rewriter(node);
  std::vector<Value*> narrow;
  for (Value* input : node.inputs()) narrow.push_back(rewriter.Cast(input, DataType::kInt32));
  return rewriter.ReplaceWith(
      rewriter.Cast(rewriter.Add(node.op_type(), narrow), DataType::kInt64));
}

std::optional<int64_t> IntegerDivisor(const Node& node) {
  if (!IsSignedInteger(node.output(0))) return std::nullopt;
  const auto number = ConstantNumber(node.input(1));
  return number && *number > 1 ? std::optional(static_cast<int64_t>(*number)) : std::nullopt;
}

// Of what is not negative.
bool DivAsShift(Node& node, Random&) {
  const auto divisor = node.Is("Div") ? IntegerDivisor(node) : std::nullopt;
  if (!divisor || !std::has_single_bit(static_cast<uint64_t>(*divisor))) return false;
  Rewriter rewriter(node);
  Value* bits = rewriter.Cast(node.input(0), DataType::kUint64);
  const auto by = static_cast<uint64_t>(std::countr_zero(static_cast<uint64_t>(*divisor)));
  Value* shifted =
      rewriter.Add("BitShift", {bits, rewriter.Constant(Tensor::Scalar<uint64_t>(by))});
  shifted->producer()->SetAttribute("direction", MakeAttribute(std::string("RIGHT")));
  return rewriter.ReplaceWith(rewriter.Cast(shifted, node.output(0)->dtype()));
}

bool ModAsAnd(Node& node, Random&) {
  const auto divisor = node.Is("Mod") ? IntegerDivisor(node) : std::nullopt;
  if (!divisor || !std::has_single_bit(static_cast<uint64_t>(*divisor))) return false;
  Rewriter rewriter(node);
  Value* mask = rewriter.Constant(
      FilledLike(*ConstantTensor(node.input(1)), static_cast<double>(*divisor - 1)));
  return rewriter.ReplaceWith(rewriter.Add("BitwiseAnd", {node.input(0), mask}));
}

bool DivAsFloor(Node& node, Random&) {
  const auto divisor = node.Is("Div") ? IntegerDivisor(node) : std::nullopt;
  if (!divisor) return false;
  Rewriter rewriter(node);
  Value* by = rewriter.Constant(Tensor::Scalar<float>(static_cast<float>(*divisor)));
  Value* quotient = rewriter.Add("Div", {rewriter.Cast(node.input(0), DataType::kFloat), by});
  return rewriter.ReplaceWith(
      rewriter.Cast(rewriter.Add("Floor", {quotient}), node.output(0)->dtype()));
}

bool AnyModAsSub(Node& node, Random&) {
  if (!node.Is("Mod") || !IntegerDivisor(node)) return false;
  Rewriter rewriter(node);
  Value* whole = rewriter.Add("Div", node.inputs());
  Value* below = rewriter.Add("Mul", {whole, node.input(1)});
  return rewriter.ReplaceWith(rewriter.Add("Sub", {node.input(0), below}));
}

// 0, 1, 2 .. as sums of ones.
bool RangeAsCumSum(Node& node, Random&) {
  if (!node.Is("Range") || !IsLong(node.output(0)) || ConstantNumber(node.input(0)) != 0.0 ||
      ConstantNumber(node.input(2)) != 1.0) {
    return false;
  }
  Rewriter rewriter(node);
  Value* dims = rewriter.Add("Reshape", {node.input(1), rewriter.Ints({1})});
  Value* ones = rewriter.Add("ConstantOfShape", {dims});
  ones->producer()->SetAttribute("value", MakeAttribute(Tensor::Of<int64_t>({1}, {1})));
  Value* axis = rewriter.Constant(Tensor::Scalar<int64_t>(0));
  Value* sums = rewriter.Add("CumSum", {ones, axis});
  return rewriter.ReplaceWith(
      rewriter.Add("Sub", {sums, rewriter.Constant(Tensor::Scalar<int64_t>(1))}));
}

bool RangeAsNonZero(Node& node, Random&) {
  if (!node.Is("Range") || !IsLong(node.output(0)) || ConstantNumber(node.input(0)) != 0.0 ||
      ConstantNumber(node.input(2)) != 1.0) {
    return false;
  }
  Rewriter rewriter(node);
  Value* dims = rewriter.Add("Reshape", {node.input(1), rewriter.Ints({1})});
  Value* ones = rewriter.Add("ConstantOfShape", {dims});
  ones->producer()->SetAttribute("value", MakeAttribute(Tensor::Of<int64_t>({1}, {1})));
  return rewriter.ReplaceWith(
      rewriter.Add("Squeeze", {rewriter.Add("NonZero", {ones}), rewriter.Ints({0})}));
}

// --- reads and writes ---

bool GatherTransposed(Node& node, Random&) {
  const int rank = RankOf(node.input(0));
  if (!node.Is("Gather") || rank < 2 || RankOf(node.input(1)) != 1) return false;
  const int64_t axis = NormalAxis(IntOr(node, "axis", 0), rank);
  const int64_t other = axis == 0 ? 1 : 0;
  std::vector<int64_t> perm(rank);
  std::iota(perm.begin(), perm.end(), 0);
  std::swap(perm[axis], perm[other]);
  Rewriter rewriter(node);
  Value* turned = rewriter.AddInts("Transpose", {node.input(0)}, "perm", perm);
  Value* rows = rewriter.AddInt("Gather", {turned, node.input(1)}, "axis", other);
  return rewriter.ReplaceWith(rewriter.AddInts("Transpose", {rows}, "perm", perm));
}

// A GatherND of one index as a Gather.
bool GatherNDAsGather(Node& node, Random&) {
  const int rank = RankOf(node.input(1));
  if (!node.Is("GatherND") || !node.attributes().empty() || rank < 1 ||
      DimAt(node.input(1), rank - 1) != 1) {
    return false;
  }
  Rewriter rewriter(node);
  Value* index = rewriter.Add("Squeeze", {node.input(1), rewriter.Ints({-1})});
  return rewriter.ReplaceWith(rewriter.AddInt("Gather", {node.input(0), index}, "axis", 0));
}

// data[i, j] as data.flat[i * n + j].
bool GatherNDFlat(Node& node, Random&) {
  const int rank = RankOf(node.input(1));
  if (!node.Is("GatherND") || IntOr(node, "batch_dims", 0) != 0 || rank < 1 ||
      DimAt(node.input(1), rank - 1) != 2) {
    return false;
  }
  const auto inner = DimAt(node.input(0), 1);
  const auto dims = ReshapeTarget(node.input(0));
  if (!inner || !dims || (*dims)[0] < 0) return false;
  std::vector<int64_t> flat = {-1};
  flat.insert(flat.end(), dims->begin() + 2, dims->end());
  Rewriter rewriter(node);
  const auto parts = rewriter.Split(node.input(1), -1, rewriter.Ints({1, 1}), 2);
  Value* width = rewriter.Constant(Tensor::Scalar<int64_t>(*inner));
  Value* row = rewriter.Add("Add", {rewriter.Add("Mul", {parts[0], width}), parts[1]});
  Value* rows = rewriter.Add("Reshape", {node.input(0), rewriter.Ints(flat)});
  Value* index = rewriter.Add("Squeeze", {row, rewriter.Ints({-1})});
  return rewriter.ReplaceWith(rewriter.AddInt("Gather", {rows, index}, "axis", 0));
}

// A write of rows into [blocks * size, ..] as one by block and place into [blocks, size, ..].
bool ScatterByBlock(Node& node, Random&) {
  if (!node.Is("ScatterND") || !node.attributes().empty()) return false;
  const int rank = RankOf(node.input(1));
  const auto dims = ReshapeTarget(node.input(0));
  if (rank < 1 || DimAt(node.input(1), rank - 1) != 1 || !dims || (*dims)[0] < 4) return false;
  const int64_t size = (*dims)[0] % 4 == 0 ? 4 : 1;
  std::vector<int64_t> blocks = {(*dims)[0] / size, size};
  blocks.insert(blocks.end(), dims->begin() + 1, dims->end());
  Rewriter rewriter(node);
  Value* by = rewriter.Constant(Tensor::Scalar<int64_t>(size));
  Value* block = rewriter.Add("Div", {node.input(1), by});
  Value* place = rewriter.Add("Mod", {node.input(1), by});
  Value* index = rewriter.AddInt("Concat", {block, place}, "axis", -1);
  Value* pool = rewriter.Add("Reshape", {node.input(0), rewriter.Ints(blocks)});
  Value* written = rewriter.Add("ScatterND", {pool, index, node.input(2)});
  return rewriter.ReplaceWith(rewriter.Add("Reshape", {written, rewriter.Ints(*dims)}));
}

bool ScatterElementsAsND(Node& node, Random&) {
  if (!node.Is("ScatterElements") || node.attribute("reduction") || RankOf(node.input(0)) != 1) {
    return false;
  }
  Rewriter rewriter(node);
  Value* index = rewriter.Add("Unsqueeze", {node.input(1), rewriter.Ints({-1})});
  return rewriter.ReplaceWith(rewriter.Add("ScatterND", {node.input(0), index, node.input(2)}));
}

// A write of one row by row.
bool ScatterNDOfFlatRows(Node& node, Random&) {
  if (!node.Is("ScatterND") || !node.attributes().empty() || RankOf(node.input(0)) < 3)
    return false;
  const int rank = RankOf(node.input(1));
  const auto dims = ReshapeTarget(node.input(0));
  if (rank != 2 || DimAt(node.input(1), 1) != 1 || !dims) return false;
  int64_t width = 1;
  for (size_t i = 1; i < dims->size(); ++i) width *= (*dims)[i];
  if (width < 1) return false;
  Rewriter rewriter(node);
  Value* pool = rewriter.Add("Reshape", {node.input(0), rewriter.Ints({-1, width})});
  Value* rows = rewriter.Add("Reshape", {node.input(2), rewriter.Ints({-1, width})});
  Value* written = rewriter.Add("ScatterND", {pool, node.input(1), rows});
  return rewriter.ReplaceWith(rewriter.Add("Reshape", {written, rewriter.Ints(*dims)}));
}

// --- layouts ---

// An elementwise op on transposed operands.
bool ElementwiseTransposed(Node& node, Random& random) {
  if (!IsOneOf(node, {"Mul", "Add", "Sub", "Div", "Cast", "Exp", "Neg", "Abs", "Relu", "Round",
                      "Max", "Min", "Tanh"})) {
    return false;
  }
  const int rank = RankOf(node.output(0));
  if (rank < 2) return false;
  std::vector<int64_t> there(rank), back(rank);
  std::iota(there.begin(), there.end(), 0);
  std::rotate(there.begin(), there.begin() + 1 + random() % (rank - 1), there.end());
  for (int i = 0; i < rank; ++i) back[there[i]] = i;
  Rewriter rewriter(node);
  std::vector<Value*> operands;
  for (Value* input : node.inputs()) {
    if (!input) return false;
    const int own = RankOf(input);
    if (own == rank) {
      operands.push_back(rewriter.AddInts("Transpose", {input}, "perm", there));
    } else if (own == 0) {
      operands.push_back(input);
    } else {
      return false;
    }
  }
  Value* result = rewriter.Add(node.op_type(), operands);
  for (const auto& [name, attribute] : node.attributes()) {
    result->producer()->SetAttribute(name, attribute);
  }
  return rewriter.ReplaceWith(rewriter.AddInts("Transpose", {result}, "perm", back));
}

constexpr Mutation kMutations[] = {
    {"strides as pairs", StridesAsPairs},
    {"strides as gather", StridesAsGather},
    {"strides as product", StridesAsProduct},
    {"concat as scatter", ConcatAsScatter},
    {"concat as padded sum", ConcatAsPaddedSum},
    {"stack as interleaved halves", StackAsInterleavedHalves},
    {"expand otherwise", ExpandOtherwise},
    {"expand as tile", ExpandAsTile},
    {"expand as gather", ExpandAsGather},
    {"repeat as gather", RepeatAsGather},
    {"places in int32", PlacesInInt32},
    {"div as shift", DivAsShift},
    {"mod as and", ModAsAnd},
    {"div as floor", DivAsFloor},
    {"any mod as sub", AnyModAsSub},
    {"range as cumsum", RangeAsCumSum},
    {"range as nonzero", RangeAsNonZero},
    {"gather transposed", GatherTransposed},
    {"gather nd as gather", GatherNDAsGather},
    {"gather nd flat", GatherNDFlat},
    {"scatter by block", ScatterByBlock},
    {"scatter elements as nd", ScatterElementsAsND},
    {"scatter nd of flat rows", ScatterNDOfFlatRows},
    {"elementwise transposed", ElementwiseTransposed},
};

}  // namespace

std::span<const Mutation> PlaceVariants() { return kMutations; }

}  // namespace pagefuse::testing
