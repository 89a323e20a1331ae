// SPDX-License-Identifier: Apache-2.0
// Rows at other places along the sequence, and rows that see other rows.
#include <cstdint>
#include <utility>

#include "change_parts.h"

#include "pagefuse/passes/edit/graph_edit.h"

namespace pagefuse::fuzz {
namespace {

// Rewrites a value along one of its axes.
using AlongAxis = Value* (*)(Rewriter& rewriter, Value* value, int64_t axis);

bool HasVaryingAxis(const Value& value) {
  for (int axis = 0; axis < testing::RankOf(&value); ++axis) {
    if (!testing::DimAt(&value, axis)) return true;
  }
  return false;
}
bool IsNumber(const Value& value) {
  return (testing::IsFloat(&value) || testing::IsSignedInteger(&value)) && HasVaryingAxis(value);
}
bool IsFloatRow(const Value& value) { return testing::IsFloat(&value) && HasVaryingAxis(value); }

Value* Part(Rewriter& rewriter, Value* value, int64_t axis, std::pair<int64_t, int64_t> range) {
  return rewriter.Add("Slice", {value, rewriter.Ints({range.first}), rewriter.Ints({range.second}),
                                rewriter.Ints({axis})});
}

Value* Joined(Rewriter& rewriter, Value* first, Value* second, int64_t axis) {
  return rewriter.AddInt("Concat", {first, second}, "axis", axis);
}

// The first row twice, the last never.
Value* OneLate(Rewriter& rewriter, Value* value, int64_t axis) {
  return Joined(rewriter, Part(rewriter, value, axis, {0, 1}), Part(rewriter, value, axis, {0, -1}),
                axis);
}

// The first row behind the last.
Value* Rolled(Rewriter& rewriter, Value* value, int64_t axis) {
  return Joined(rewriter, Part(rewriter, value, axis, {1, INT64_MAX}),
                Part(rewriter, value, axis, {0, 1}), axis);
}

Value* OneEarly(Rewriter& rewriter, Value* value, int64_t axis) {
  return Joined(rewriter, Part(rewriter, value, axis, {1, INT64_MAX}),
                Part(rewriter, value, axis, {-1, INT64_MAX}), axis);
}

Value* Summed(Rewriter& rewriter, Value* value, int64_t axis) {
  return rewriter.Add("CumSum", {value, rewriter.Constant(Tensor::Of<int64_t>({}, {axis}))});
}

Value* WithoutFirst(Rewriter& rewriter, Value* value, int64_t axis) {
  return rewriter.Add("Sub", {value, Part(rewriter, value, axis, {0, 1})});
}

Value* WithLast(Rewriter& rewriter, Value* value, int64_t axis) {
  Value* last = Part(rewriter, value, axis, {-1, INT64_MAX});
  return rewriter.Add("Add", {value, last});
}

Value* Reduced(Rewriter& rewriter, Value* value, int64_t axis, const char* op) {
  return rewriter.Add(op, {value, rewriter.Ints({axis})});
}

Value* WithMean(Rewriter& rewriter, Value* value, int64_t axis) {
  return rewriter.Add("Add", {value, Reduced(rewriter, value, axis, "ReduceMean")});
}

Value* WithoutLargest(Rewriter& rewriter, Value* value, int64_t axis) {
  return rewriter.Add("Sub", {value, Reduced(rewriter, value, axis, "ReduceMax")});
}

Value* OverSum(Rewriter& rewriter, Value* value, int64_t axis) {
  return rewriter.AddInt("Softmax", {value}, "axis", axis);
}

// 0 in the first row.
Value* Hidden(Rewriter& rewriter, Value* value, int64_t axis) {
  Value* first = Part(rewriter, value, axis, {0, 1});
  return Joined(rewriter, rewriter.Add("Sub", {first, first}),
                Part(rewriter, value, axis, {1, INT64_MAX}), axis);
}

// No number in the third row, where there is one.
Value* NoNumber(Rewriter& rewriter, Value* value, int64_t axis) {
  Value* third = Part(rewriter, value, axis, {2, 3});
  Value* nothing = rewriter.Add("Sub", {third, third});
  Value* joined = Joined(rewriter, Part(rewriter, value, axis, {0, 2}),
                         rewriter.Add("Div", {nothing, nothing}), axis);
  return Joined(rewriter, joined, Part(rewriter, value, axis, {3, INT64_MAX}), axis);
}

Change Along(const char* name, AlongAxis make, bool (*fits)(const Value&)) {
  return {"sequence", name, [make, fits](Node& node, Random& random) {
            return ReplaceInput(node, random, fits, [&](Rewriter& rewriter, Value* value) {
              const int axis = PickVaryingAxis(*value, random);
              return axis < 0 ? nullptr : make(rewriter, value, axis);
            });
          }};
}

// A Slice of one place more or less at either end.
bool OtherEnds(Node& node, Random& random) {
  if (!node.Is("Slice")) return false;
  const int index = 1 + static_cast<int>(random() % 2);
  const auto ends = testing::ConstantInts(node.input(index));
  if (!ends || ends->size() != 1) return false;
  constexpr int64_t kFar = 1000;
  const int64_t by = random() % 2 == 0 ? 1 : -1;
  const int64_t end = ends->front() > kFar ? -1 : ends->front() + by;
  Rewriter rewriter(node);
  const Tensor like = *testing::ConstantTensor(node.input(index));
  node.SetInput(index, rewriter.Constant(testing::FilledLike(like, static_cast<double>(end))));
  return true;
}

}  // namespace

std::vector<Change> SequenceChanges() {
  return {Along("rows one place late", OneLate, HasVaryingAxis),
          Along("rows one place early", OneEarly, HasVaryingAxis),
          Along("the first row behind the last", Rolled, HasVaryingAxis),
          Along("rows in reverse", ReversedAlong, HasVaryingAxis),
          Along("rows summed up", Summed, IsNumber),
          Along("the first row taken off", WithoutFirst, IsNumber),
          Along("the last row added", WithLast, IsNumber),
          Along("the mean of rows added", WithMean, IsFloatRow),
          Along("the largest of rows taken off", WithoutLargest, IsNumber),
          Along("a softmax of rows", OverSum, IsFloatRow),
          Along("a first row of 0", Hidden, IsNumber),
          Along("a row of no numbers", NoNumber, IsFloatRow),
          {"sequence", "a slice that ends elsewhere", OtherEnds}};
}

}  // namespace pagefuse::fuzz
