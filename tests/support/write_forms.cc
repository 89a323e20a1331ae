// SPDX-License-Identifier: Apache-2.0
// Other forms of how rows are written by slot and read from pools, and of codes and scales:
// what takes more than one node to say otherwise.
#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "mutation_parts.h"

#include "pagefuse/passes/edit/graph_edit.h"

namespace pagefuse::testing {
namespace {

Value* Long(Rewriter& rewriter, int64_t number) {
  return rewriter.Constant(Tensor::Scalar<int64_t>(number));
}

// A ScatterND of rows by a list of slots [n, 1], into a pool of known length.
struct RowWrite {
  int64_t slots = 0;
  std::vector<int64_t> dims;  // of the pool
};

std::optional<RowWrite> ReadRowWrite(const Node& node) {
  if (!node.Is("ScatterND") || !node.attributes().empty()) return std::nullopt;
  if (RankOf(node.input(1)) != 2 || DimAt(node.input(1), 1) != 1) return std::nullopt;
  const auto dims = ReshapeTarget(node.input(0));
  if (!dims || dims->empty() || (*dims)[0] < 1 || ConstantTensor(node.input(1))) {
    return std::nullopt;
  }
  return RowWrite{(*dims)[0], *dims};
}

// A row more, which what has no slot goes to, and which is cut off again.
bool WriteWithSpareRow(Node& node, Random&) {
  const auto write = ReadRowWrite(node);
  if (!write) return false;
  Rewriter rewriter(node);
  Value* first = rewriter.Add(
      "Slice", {node.input(0), rewriter.Ints({0}), rewriter.Ints({1}), rewriter.Ints({0})});
  Value* pool = rewriter.AddInt("Concat", {node.input(0), first}, "axis", 0);
  Value* zero = Long(rewriter, 0);
  Value* missing = rewriter.Add("Less", {node.input(1), zero});
  Value* slots = rewriter.Add("Where", {missing, Long(rewriter, write->slots), node.input(1)});
  Value* written = rewriter.Add("ScatterND", {pool, slots, node.input(2)});
  return rewriter.ReplaceWith(rewriter.Add(
      "Slice", {written, rewriter.Ints({0}), rewriter.Ints({write->slots}), rewriter.Ints({0})}));
}

// Only rows that have a slot, picked by Compress or by NonZero.
bool WriteOfChosenRows(Node& node, Random& random) {
  if (!ReadRowWrite(node)) return false;
  Rewriter rewriter(node);
  Value* flat = rewriter.Add("Reshape", {node.input(1), rewriter.Ints({-1})});
  Value* has_slot = rewriter.Add("GreaterOrEqual", {flat, Long(rewriter, 0)});
  Value *slots = nullptr, *rows = nullptr;
  if (random() % 2 == 0) {
    slots = rewriter.AddInt("Compress", {node.input(1), has_slot}, "axis", 0);
    rows = rewriter.AddInt("Compress", {node.input(2), has_slot}, "axis", 0);
  } else {
    Value* places =
        rewriter.Add("Squeeze", {rewriter.Add("NonZero", {has_slot}), rewriter.Ints({0})});
    slots = rewriter.AddInt("Gather", {node.input(1), places}, "axis", 0);
    rows = rewriter.AddInt("Gather", {node.input(2), places}, "axis", 0);
  }
  return rewriter.ReplaceWith(rewriter.Add("ScatterND", {node.input(0), slots, rows}));
}

// Both parts of a row, each into its columns.
bool WriteInTwoParts(Node& node, Random&) {
  const auto write = ReadRowWrite(node);
  const Node* row = write ? node.input(2)->producer() : nullptr;
  if (!row || !row->Is("Concat") || row->num_inputs() != 2 || write->dims.size() != 2) return false;
  const int rank = RankOf(node.input(2));
  const auto first = DimAt(row->input(0), rank - 1);
  if (NormalAxis(IntOr(*row, "axis", 0), rank) != rank - 1 || rank != 2 || !first) return false;
  Rewriter rewriter(node);
  const auto parts =
      rewriter.Split(node.input(0), -1, rewriter.Ints({*first, write->dims[1] - *first}), 2);
  std::vector<Value*> written;
  for (int i = 0; i < 2; ++i) {
    written.push_back(rewriter.Add("ScatterND", {parts[i], node.input(1), row->input(i)}));
  }
  return rewriter.ReplaceWith(rewriter.AddInt("Concat", written, "axis", -1));
}

// Every slot asks which row is its own.
bool WriteAsChoice(Node& node, Random&) {
  const auto write = ReadRowWrite(node);
  if (!write || write->dims.size() != 2) return false;
  Rewriter rewriter(node);
  std::vector<int64_t> all(write->slots);
  std::iota(all.begin(), all.end(), 0);
  Value* places = rewriter.Constant(Tensor::Of<int64_t>({1, write->slots}, all));
  Value* equal = rewriter.Add("Equal", {node.input(1), places});  // [n, slots]
  Value* numbers = rewriter.Cast(equal, DataType::kInt32);
  Value* any = rewriter.AddInt("ReduceMax", {numbers, rewriter.Ints({0})}, "keepdims", 0);
  Value* which = rewriter.AddInt("ArgMax", {numbers}, "axis", 0);
  which->producer()->SetAttribute("keepdims", MakeAttribute(int64_t{0}));
  which->producer()->SetAttribute("select_last_index", MakeAttribute(int64_t{1}));
  Value* rows = rewriter.AddInt("Gather", {node.input(2), which}, "axis", 0);
  Value* chosen =
      rewriter.Add("Unsqueeze", {rewriter.Cast(any, DataType::kBool), rewriter.Ints({1})});
  return rewriter.ReplaceWith(rewriter.Add("Where", {chosen, rows, node.input(0)}));
}

// --- reads ---

// Blocks by a table, then rows: as rows of all blocks, by slot.
bool BlocksAsSlots(Node& node, Random&) {
  const Node* gather = node.Is("Reshape") ? node.input(0)->producer() : nullptr;
  if (!gather || !gather->Is("Gather") || IntOr(*gather, "axis", 0) != 0 ||
      RankOf(gather->input(1)) != 2 || !IsSignedInteger(gather->input(1))) {
    return false;
  }
  const auto pool = ReshapeTarget(gather->input(0)), rows = ReshapeTarget(node.output(0));
  const auto size = DimAt(gather->input(0), 1), blocks = DimAt(gather->input(1), 1);
  if (!pool || !rows || !size || !blocks || pool->size() + 0 != rows->size()) return false;
  if (DimAt(node.output(0), 1) != *size * *blocks) return false;
  for (size_t i = 2; i < rows->size(); ++i) {
    if ((*rows)[i] != (*pool)[i]) return false;
  }
  Rewriter rewriter(node);
  std::vector<int64_t> flat = {-1};
  flat.insert(flat.end(), pool->begin() + 2, pool->end());
  std::vector<int64_t> places(*size);
  std::iota(places.begin(), places.end(), 0);
  Value* table = rewriter.Cast(gather->input(1), DataType::kInt64);
  Value* starts = rewriter.Add("Mul", {table, Long(rewriter, *size)});
  Value* slots = rewriter.Add(
      "Add", {rewriter.Add("Unsqueeze", {starts, rewriter.Ints({2})}), rewriter.Ints(places)});
  Value* by_row = rewriter.Add("Reshape", {slots, rewriter.Ints({-1, *size * *blocks})});
  Value* all = rewriter.Add("Reshape", {gather->input(0), rewriter.Ints(flat)});
  return rewriter.ReplaceWith(rewriter.AddInt("Gather", {all, by_row}, "axis", 0));
}

bool GatherByInt32(Node& node, Random&) {
  if (!node.Is("Gather") || node.input(1)->dtype() != DataType::kInt64) return false;
  Rewriter rewriter(node);
  Value* narrow = rewriter.Cast(node.input(1), DataType::kInt32);
  return rewriter.ReplaceWith(
      rewriter.AddInt("Gather", {node.input(0), narrow}, "axis", IntOr(node, "axis", 0)));
}

// --- codes ---

// ceil (log2 x) as how many powers of two are below x.
bool ExponentAsCount(Node& node, Random&) {
  const Node* quotient = node.Is("Ceil") ? node.input(0)->producer() : nullptr;
  const Node* logarithm =
      quotient && quotient->Is("Div") ? quotient->input(0)->producer() : nullptr;
  if (!logarithm || !logarithm->Is("Log")) return false;
  const auto base = ConstantNumber(quotient->input(1));
  const int rank = RankOf(node.output(0));
  if (!base || std::abs(*base - M_LN2) > 1e-6 || rank < 0) return false;
  constexpr int kLeast = -126, kMost = 127;
  std::vector<float> powers;
  for (int i = kLeast; i < kMost; ++i) powers.push_back(std::ldexp(1.0f, i));
  const auto count = static_cast<int64_t>(powers.size());
  Rewriter rewriter(node);
  Value* x = rewriter.Add("Unsqueeze", {logarithm->input(0), rewriter.Ints({rank})});
  Value* above =
      rewriter.Add("Greater", {x, rewriter.Constant(Tensor::Of<float>({count}, powers))});
  Value* counted = rewriter.AddInt(
      "ReduceSum", {rewriter.Cast(above, DataType::kFloat), rewriter.Ints({rank})}, "keepdims", 0);
  Value* least = rewriter.Constant(Tensor::Scalar<float>(static_cast<float>(kLeast)));
  return rewriter.ReplaceWith(rewriter.Add("Add", {counted, least}));
}

bool ShiftOfNibblesAsDiv(Node& node, Random&) {
  if (!node.Is("BitShift") || node.input(0)->dtype() != DataType::kUint8) return false;
  const auto by = ConstantNumber(node.input(1));
  if (!by) return false;
  const bool right = StringOr(node, "direction", "") == "RIGHT";
  Rewriter rewriter(node);
  Value* wide = rewriter.Cast(node.input(0), DataType::kInt32);
  Value* power = rewriter.Constant(Tensor::Scalar<int32_t>(1 << static_cast<int>(*by)));
  return rewriter.ReplaceWith(
      rewriter.Cast(rewriter.Add(right ? "Div" : "Mul", {wide, power}), DataType::kUint8));
}

bool AndOfNibblesAsMod(Node& node, Random&) {
  if (!node.Is("BitwiseAnd") || node.input(0)->dtype() != DataType::kUint8) return false;
  const auto mask = ConstantNumber(node.input(1));
  if (!mask || !std::has_single_bit(static_cast<unsigned>(*mask) + 1)) return false;
  Rewriter rewriter(node);
  Value* wide = rewriter.Cast(node.input(0), DataType::kInt32);
  Value* count = rewriter.Constant(Tensor::Scalar<int32_t>(static_cast<int32_t>(*mask) + 1));
  return rewriter.ReplaceWith(rewriter.Cast(rewriter.Add("Mod", {wide, count}), DataType::kUint8));
}

// How many are true, as a product with ones.
bool CountAsProduct(Node& node, Random&) {
  const auto axes = node.Is("ReduceSum") ? ConstantInts(node.input(1)) : std::nullopt;
  const Node* cast = axes && axes->size() == 1 ? node.input(0)->producer() : nullptr;
  if (!cast || !cast->Is("Cast") || cast->input(0)->dtype() != DataType::kBool) return false;
  const int rank = RankOf(node.input(0));
  const auto size = DimAt(node.input(0), rank - 1);
  if (!size || rank < 2 || NormalAxis(axes->front(), rank) != rank - 1) return false;
  Rewriter rewriter(node);
  Value* numbers = rewriter.Cast(cast->input(0), DataType::kFloat);
  Value* ones = rewriter.Constant(Tensor::Of<float>({*size, 1}, std::vector<float>(*size, 1.0f)));
  Value* counted = rewriter.Cast(rewriter.Add("MatMul", {numbers, ones}), node.output(0)->dtype());
  if (IntOr(node, "keepdims", 1) == 0) {
    counted = rewriter.Add("Squeeze", {counted, rewriter.Ints({-1})});
  }
  return rewriter.ReplaceWith(counted);
}

constexpr Mutation kMutations[] = {
    {"write with spare row", WriteWithSpareRow},  {"write of chosen rows", WriteOfChosenRows},
    {"write in two parts", WriteInTwoParts},      {"write as choice", WriteAsChoice},
    {"blocks as slots", BlocksAsSlots},           {"gather by int32", GatherByInt32},
    {"exponent as count", ExponentAsCount},       {"shift of nibbles as div", ShiftOfNibblesAsDiv},
    {"and of nibbles as mod", AndOfNibblesAsMod}, {"count as product", CountAsProduct},
};

}  // namespace

std::span<const Mutation> WriteVariants() { return kMutations; }

}  // namespace pagefuse::testing
