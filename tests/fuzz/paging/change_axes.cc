// SPDX-License-Identifier: Apache-2.0
// Other axes of the same ranks.
#include <algorithm>

#include "change_parts.h"

#include "pagefuse/passes/edit/graph_edit.h"

namespace pagefuse::fuzz {
namespace {

bool OtherAxis(Node& node, Random& random) {
  if (!node.attribute("axis") && !testing::IsOneOf(node, {"Softmax", "LogSoftmax", "Gather"})) {
    return false;
  }
  const int rank = std::max(testing::RankOf(node.input(0)), testing::RankOf(node.output(0)));
  const auto axis = node.IntAttribute("axis", node.Is("Gather") ? 0 : -1);
  if (rank < 2 || !axis.ok()) return false;
  const int64_t other = static_cast<int64_t>(random() % rank);
  if (NormalAxis(*axis, rank) == other) return false;
  node.SetAttribute("axis", MakeAttribute(other));
  return true;
}

// The axes of a reduction or a view, given as an input.
bool OtherAxesInput(Node& node, Random& random) {
  const bool last = testing::IsOneOf(node, {"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin",
                                            "Squeeze", "Unsqueeze", "CumSum"});
  const int index = node.Is("Slice") ? 3 : last ? 1 : -1;
  if (index < 0) return false;
  const auto axes = testing::ConstantInts(node.input(index));
  const int rank = testing::RankOf(node.Is("Unsqueeze") ? node.output(0) : node.input(0));
  if (!axes || axes->size() != 1 || rank < 2) return false;
  const int64_t other = static_cast<int64_t>(random() % rank);
  if (NormalAxis(axes->front(), rank) == other) return false;
  const Tensor like = *testing::ConstantTensor(node.input(index));
  Rewriter rewriter(node);
  node.SetInput(index, rewriter.Constant(testing::FilledLike(like, static_cast<double>(other))));
  return true;
}

bool OtherPermutation(Node& node, Random& random) {
  if (!node.Is("Transpose")) return false;
  auto perm = node.IntsAttribute("perm", {});
  if (!perm.ok() || perm->size() < 2) return false;
  const size_t i = random() % perm->size(), j = random() % perm->size();
  if (i == j) return false;
  std::swap((*perm)[i], (*perm)[j]);
  node.SetAttribute("perm", MakeAttribute(*perm));
  return true;
}

// Read as if two axes had changed places, without moving a number.
bool ViewedTransposed(Node& node, Random& random) {
  const auto fits = [](const Value& value) {
    return testing::IsFloat(&value) && testing::RankOf(&value) >= 3;
  };
  return ReplaceInput(node, random, fits, [&](Rewriter& rewriter, Value* value) -> Value* {
    const int rank = testing::RankOf(value);
    const int axis = static_cast<int>(random() % (rank - 1));
    std::vector<int64_t> perm(static_cast<size_t>(rank));
    for (int i = 0; i < rank; ++i) perm[static_cast<size_t>(i)] = i;
    std::swap(perm[static_cast<size_t>(axis)], perm[static_cast<size_t>(axis) + 1]);
    Value* shape = rewriter.Add("Shape", {value});
    return rewriter.Add("Reshape", {rewriter.AddInts("Transpose", {value}, "perm", perm), shape});
  });
}

bool ReduceOverMore(Node& node, Random& random) {
  const bool reduces =
      testing::IsOneOf(node, {"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin"});
  const int rank = reduces ? testing::RankOf(node.input(0)) : -1;
  const auto axes = reduces ? testing::ConstantInts(node.input(1)) : std::nullopt;
  const auto keeps = node.IntAttribute("keepdims", 1);
  if (!axes || rank < 2 || !keeps.ok() || *keeps != 1) return false;
  std::vector<int64_t> more = *axes;
  for (int64_t& axis : more) axis = NormalAxis(axis, rank);
  const int64_t other = static_cast<int64_t>(random() % rank);
  if (std::ranges::count(more, other) > 0) return false;
  more.push_back(other);
  std::ranges::sort(more);
  node.SetInput(1, Rewriter(node).Ints(more));
  return true;
}

}  // namespace

std::vector<Change> AxisChanges() {
  return {{"axes", "another axis", OtherAxis},
          {"axes", "another axis as an input", OtherAxesInput},
          {"axes", "another permutation", OtherPermutation},
          {"axes", "two axes exchanged in a view", ViewedTransposed},
          {"axes", "a reduction over one axis more", ReduceOverMore}};
}

}  // namespace pagefuse::fuzz
