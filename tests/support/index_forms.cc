// SPDX-License-Identifier: Apache-2.0
// Other forms of reading and writing by index: slices, gathers, scatters, and the arithmetic of
// block and place.
#include <algorithm>
#include <limits>
#include <numeric>

#include "mutation_parts.h"

#include "pagefuse/passes/edit/graph_edit.h"

namespace pagefuse::testing {
namespace {

// A Slice of one axis in steps of one, whose bounds and size are numbers.
struct Cut {
  int64_t axis = 0, begin = 0, end = 0, size = 0;
};

std::optional<Cut> ReadSlice(const Node& node) {
  if (!node.Is("Slice")) return std::nullopt;
  const auto begin = ConstantInts(node.input(1)), end = ConstantInts(node.input(2));
  const auto axes = node.input(3) ? ConstantInts(node.input(3)) : std::vector<int64_t>{0};
  const auto steps = node.input(4) ? ConstantInts(node.input(4)) : std::vector<int64_t>{1};
  if (!begin || !end || !axes || !steps || axes->size() != 1 || steps->front() != 1) {
    return std::nullopt;
  }
  Cut cut = {.axis = NormalAxis(axes->front(), RankOf(node.input(0)))};
  const auto size = DimAt(node.input(0), cut.axis);
  if (!size) return std::nullopt;
  const auto place = [&](int64_t at) {
    return std::clamp<int64_t>(at < 0 ? at + *size : at, 0, *size);
  };
  cut.begin = place(begin->front());
  cut.end = place(end->front());
  cut.size = *size;
  return cut.begin < cut.end ? std::optional(cut) : std::nullopt;
}

bool SliceAsSplit(Node& node, Random&) {
  const auto cut = ReadSlice(node);
  if (!cut || cut->end - cut->begin == cut->size) return false;
  std::vector<int64_t> sizes;
  if (cut->begin > 0) sizes.push_back(cut->begin);
  const auto wanted = static_cast<int>(sizes.size());
  sizes.push_back(cut->end - cut->begin);
  if (cut->end < cut->size) sizes.push_back(cut->size - cut->end);
  Rewriter rewriter(node);
  const std::vector<Value*> parts = rewriter.Split(node.input(0), cut->axis, rewriter.Ints(sizes),
                                                   static_cast<int>(sizes.size()));
  return rewriter.ReplaceWith(parts[wanted]);
}

bool SliceAsGather(Node& node, Random&) {
  const auto cut = ReadSlice(node);
  constexpr int64_t kFew = 1024;
  if (!cut || cut->end - cut->begin > kFew) return false;
  std::vector<int64_t> places(cut->end - cut->begin);
  std::iota(places.begin(), places.end(), cut->begin);
  Rewriter rewriter(node);
  return rewriter.ReplaceWith(
      rewriter.AddInt("Gather", {node.input(0), rewriter.Ints(places)}, "axis", cut->axis));
}

bool SliceFromTheEnd(Node& node, Random&) {
  const auto cut = ReadSlice(node);
  if (!cut || cut->end != cut->size || cut->begin == 0) return false;
  Rewriter rewriter(node);
  Value* begin = rewriter.Ints({cut->begin - cut->size});
  Value* end = rewriter.Ints({std::numeric_limits<int64_t>::max()});
  return rewriter.ReplaceWith(
      rewriter.Add("Slice", {node.input(0), begin, end, rewriter.Ints({cut->axis})}));
}

bool SplitAsSlices(Node& node, Random&) {
  if (!node.Is("Split")) return false;
  const int64_t axis = NormalAxis(IntOr(node, "axis", 0), RankOf(node.input(0)));
  Rewriter rewriter(node);
  int64_t begin = 0;
  std::vector<Value*> parts;
  for (const Value* output : node.outputs()) {
    const auto size = output ? DimAt(output, axis) : std::nullopt;
    if (!size) return false;
    parts.push_back(rewriter.Add("Slice", {node.input(0), rewriter.Ints({begin}),
                                           rewriter.Ints({begin + *size}), rewriter.Ints({axis})}));
    begin += *size;
  }
  for (int i = 0; i < node.num_outputs(); ++i) rewriter.Replace(i, parts[i]);
  return rewriter.Done();
}

bool GatherAsGatherND(Node& node, Random&) {
  if (!node.Is("Gather") || IntOr(node, "axis", 0) != 0 || RankOf(node.input(1)) < 0) return false;
  if (!IsSignedInteger(node.input(1)) || ConstantTensor(node.input(1))) return false;
  Rewriter rewriter(node);
  Value* indices = node.input(1);
  if (indices->dtype() != DataType::kInt64) indices = rewriter.Cast(indices, DataType::kInt64);
  Value* rows = rewriter.Add("Unsqueeze", {indices, rewriter.Ints({-1})});
  return rewriter.ReplaceWith(rewriter.Add("GatherND", {node.input(0), rows}));
}

bool GatherAsElements(Node& node, Random&) {
  // A row of a table for every index.
  if (!node.Is("Gather") || IntOr(node, "axis", 0) != 0) return false;
  if (RankOf(node.input(0)) != 2 || RankOf(node.input(1)) != 1 || !IsSignedInteger(node.input(1))) {
    return false;
  }
  Rewriter rewriter(node);
  Value* width = rewriter.AddInt("Shape", {node.input(0)}, "start", 1);
  Value* count = rewriter.Add("Shape", {node.input(1)});
  Value* dims = rewriter.AddInt("Concat", {count, width}, "axis", 0);
  Value* column = rewriter.Add("Unsqueeze", {node.input(1), rewriter.Ints({1})});
  Value* places = rewriter.Add("Expand", {column, dims});
  return rewriter.ReplaceWith(
      rewriter.AddInt("GatherElements", {node.input(0), places}, "axis", 0));
}

// Rows by one index, as an index an element.
bool ScatterNDAsElements(Node& node, Random&) {
  if (!node.Is("ScatterND") || !node.attributes().empty()) return false;
  if (RankOf(node.input(0)) != 2 || RankOf(node.input(1)) != 2 || DimAt(node.input(1), 1) != 1) {
    return false;
  }
  Rewriter rewriter(node);
  Value* places = rewriter.Add("Expand", {node.input(1), rewriter.Add("Shape", {node.input(2)})});
  return rewriter.ReplaceWith(
      rewriter.AddInt("ScatterElements", {node.input(0), places, node.input(2)}, "axis", 0));
}

// x mod n as x - x / n * n, of what has been divided by n beside it.
bool ModAsSub(Node& node, Random&) {
  if (!node.Is("Mod") || !IsSignedInteger(node.input(0))) return false;
  bool divided = false;
  for (const Use& use : node.input(0)->uses()) divided = divided || use.node->Is("Div");
  if (!divided) return false;
  Rewriter rewriter(node);
  Value* whole = rewriter.Add("Div", node.inputs());
  Value* below = rewriter.Add("Mul", {whole, node.input(1)});
  return rewriter.ReplaceWith(rewriter.Add("Sub", {node.input(0), below}));
}

constexpr Mutation kMutations[] = {
    {"slice as split", SliceAsSplit},
    {"slice as gather", SliceAsGather},
    {"slice from the end", SliceFromTheEnd},
    {"split as slices", SplitAsSlices},
    {"gather as gather nd", GatherAsGatherND},
    {"gather as elements", GatherAsElements},
    {"scatter nd as elements", ScatterNDAsElements},
    {"mod as sub", ModAsSub},
};

}  // namespace

std::span<const Mutation> IndexVariants() { return kMutations; }

}  // namespace pagefuse::testing
