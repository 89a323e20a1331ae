// SPDX-License-Identifier: Apache-2.0
#include <optional>

#include "pagefuse/passes/edit/axes.h"
#include "pagefuse/passes/edit/op_types.h"
#include "pagefuse/passes/simplify/view_rules.h"

namespace pagefuse {
namespace {

// first, first + step, ..: `count` places of an axis.
struct Places {
  int64_t first = 0;
  int64_t step = 1;
  int64_t count = 0;
};
std::optional<Places> PlacesOf(const Value& indices, int64_t length) {
  const Tensor* tensor = ConstantOf(&indices);
  if (!tensor || tensor->rank() != 1 || tensor->size() < 1) return std::nullopt;
  const auto read = IntegerValues(*tensor);
  if (!read.ok()) return std::nullopt;
  std::vector<int64_t> at = *read;
  for (int64_t& place : at) place += place < 0 ? length : 0;
  const auto count = static_cast<int64_t>(at.size());
  const Places places = {at[0], count > 1 ? at[1] - at[0] : 1, count};
  for (int64_t i = 0; i < count; ++i) {
    if (at[i] != places.first + i * places.step || at[i] < 0 || at[i] >= length) {
      return std::nullopt;
    }
  }
  return places.step > 0 ? std::optional(places) : std::nullopt;
}

bool IsReduction(const Node& node) {
  return IsAnyOf(node, {"ReduceSum", "ReduceMax", "ReduceMin", "ReduceMean", "ReduceL2",
                        "ReduceProd", "ReduceSumSquare"});
}

// The shape of the reduction's result if it kept its axes, or if it dropped them.
std::optional<Shape> ReducedShape(const Node& node, const std::vector<int64_t>& axes, bool keeps) {
  const Shape* from = ShapeOf(node.input(0));
  if (!from) return std::nullopt;
  std::vector<bool> reduced(from->rank());
  for (int64_t axis : axes) {
    const int64_t normal = NormalAxis(axis, from->rank());
    if (normal < 0 || normal >= from->rank()) return std::nullopt;
    reduced[normal] = true;
  }
  std::vector<Dim> dims;
  for (int axis = 0; axis < from->rank(); ++axis) {
    if (!reduced[axis]) dims.push_back((*from)[axis]);
    if (reduced[axis] && keeps) dims.emplace_back(1);
  }
  return Shape(std::move(dims));
}

// The only output that anything reads, -1 if there are none or more.
int OnlyOutputRead(const Node& node) {
  int read = -1;
  for (int i = 0; i < node.num_outputs(); ++i) {
    const Value* output = node.output(i);
    if (!output || (output->uses().empty() && !output->is_output())) continue;
    if (read >= 0) return -1;
    read = i;
  }
  return read;
}

}  // namespace

bool JoinParts(Node& node, Peephole& peephole) {
  const Shape* shape = ShapeOf(node.output(0));
  if (!shape || node.num_inputs() < 2) return false;
  const int64_t axis = NormalAxis(IntOr(node, "axis", 0), shape->rank());
  Value* whole = nullptr;
  int64_t end = 0;
  for (const Value* input : node.inputs()) {
    const auto part = PartOf(*input, axis, peephole.contents());
    if (!part || (whole && part->whole != whole) || part->begin != end) return false;
    whole = part->whole;
    end = part->end;
  }
  return SameShapes(node.output(0), whole) && peephole.Replace(node, whole);
}

bool SplitToSlice(Node& node, Peephole& peephole) {
  const Shape* shape = ShapeOf(node.input(0));
  const int read = OnlyOutputRead(node);
  if (!shape || read < 0) return false;
  const int64_t axis = NormalAxis(IntOr(node, "axis", 0), shape->rank());
  const auto part = PartOf(*node.output(read), axis, peephole.contents());
  if (!part) return false;
  Value* slice =
      peephole.AddNode(node, "Slice",
                       {part->whole, peephole.Ints("starts", {part->begin}),
                        peephole.Ints("ends", {part->end}), peephole.Ints("axes", {axis})});
  return ReplaceValue(peephole.graph(), node.output(read), slice);
}

bool GatherToSlice(Node& node, Peephole& peephole) {
  const Shape* shape = ShapeOf(node.input(0));
  if (!shape || !node.input(1)) return false;
  const int64_t axis = NormalAxis(IntOr(node, "axis", 0), shape->rank());
  if (axis < 0 || axis >= shape->rank()) return false;
  const auto length = (*shape)[static_cast<int>(axis)].constant();
  const auto places = length ? PlacesOf(*node.input(1), *length) : std::nullopt;
  if (!places) return false;
  const int64_t end = places->first + (places->count - 1) * places->step + 1;
  std::vector<Value*> inputs = {node.input(0), peephole.Ints("starts", {places->first}),
                                peephole.Ints("ends", {end}), peephole.Ints("axes", {axis})};
  if (places->step > 1) inputs.push_back(peephole.Ints("steps", {places->step}));
  return peephole.ReplaceByNode(node, "Slice", std::move(inputs));
}

bool ViewOfReduction(Node& node, Peephole& peephole) {
  const Node* reduction = node.input(0) ? node.input(0)->producer() : nullptr;
  if (!reduction || !IsReduction(*reduction) || reduction->graph() != node.graph()) return false;
  if (node.input(0)->uses().size() != 1 || node.input(0)->is_output()) return false;
  if (reduction->num_inputs() < 2 || !reduction->input(1)) return false;
  const auto axes = KnownInts(reduction->input(1), peephole.contents());
  if (!axes || axes->empty()) return false;
  const bool keeps = IntOr(*reduction, "keepdims", 1) != 0;
  const auto other = ReducedShape(*reduction, *axes, !keeps);
  const Shape* shape = ShapeOf(node.output(0));
  if (!other || !shape || !ProvablyEqual(*shape, *other)) return false;
  return peephole.ReplaceByNode(node, reduction->op_type(), reduction->inputs(),
                                {*reduction, {{"keepdims", keeps ? 0 : 1}}});
}

}  // namespace pagefuse
