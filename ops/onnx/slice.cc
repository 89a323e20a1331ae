// SPDX-License-Identifier: Apache-2.0
// Slice: a range of every axis, forwards or backwards.
#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/infer/symbolic_arithmetic.h"
#include "pagefuse/ops/onnx/movement.h"

namespace pagefuse::onnx_ops {
namespace {

// What is taken of one axis: elements start, start + step, ...
struct Taken {
  int64_t start;
  int64_t step;
  int64_t count;
};

// numpy's rules: ends count from the back where negative, and are clamped to what the direction can
// reach.
Taken Take(int64_t size, int64_t start, int64_t end, int64_t step) {
  const auto clamp = [&](int64_t i) {
    const int64_t from_front = i < 0 ? i + size : i;
    return step > 0 ? std::clamp<int64_t>(from_front, 0, size)
                    : std::clamp<int64_t>(from_front, -1, size - 1);
  };
  start = clamp(start);
  end = clamp(end);
  const int64_t distance = step > 0 ? end - start : start - end;
  // |(distance - 1) / step| without -step, which INT64_MIN lacks.
  const int64_t jumps = distance <= 0 ? 0 : (distance - 1) / step;
  return {start, step, distance <= 0 ? 0 : 1 + (jumps < 0 ? -jumps : jumps)};
}

// An end of the range within [0, size], for positive steps; unknown if that cannot be told.
Dim ClampForward(const Dim& end, const Dim& size) {
  if (!end.known() || !size.known()) return Dim();
  if (end.is_constant() && *end.constant() >= std::numeric_limits<int32_t>::max()) return size;
  if (IsNonNegative(end)) return DimMin(end, size);
  const Dim from_back = Dim(0) - end;
  return IsNonNegative(from_back) ? size - DimMin(from_back, size) : Dim();
}

bool IsWholeReverse(const Dim& start, const Dim& end, int64_t step) {
  return step == -1 &&
         (start == Dim(-1) ||
          (start.is_constant() && *start.constant() >= std::numeric_limits<int32_t>::max())) &&
         end.is_constant() && *end.constant() <= std::numeric_limits<int32_t>::min();
}

// The number of elements taken of an axis; unknown if that cannot be told.
Dim CountTaken(const Dim& size, const Dim& start, const Dim& end, int64_t step) {
  if (size.is_constant() && start.is_constant() && end.is_constant()) {
    return Dim(Take(*size.constant(), *start.constant(), *end.constant(), step).count);
  }
  if (step < 0) return IsWholeReverse(start, end, step) ? size : Dim();
  const Dim first = ClampForward(start, size);
  const Dim last = ClampForward(end, size);
  const Dim distance = last - first;
  // What follows a start within the axis is never negative, whatever the expression looks like.
  if (!distance.known() || (!(last == size) && !IsNonNegative(distance))) return Dim();
  return step == 1 ? distance : (distance + Dim(step - 1)).FloorDiv(Dim(step));
}

constexpr MovedList kStarts{1, "starts"};
constexpr MovedList kEnds{2, "ends"};
constexpr MovedList kAxes{3, "axes"};

struct SliceInputs {
  std::vector<Dim> starts;
  std::vector<Dim> ends;
  std::vector<int> axes;
  std::vector<int64_t> steps;
};

// A bound as contents, or as `count` unknown elements.
std::vector<Dim> Bounds(const ShapeContext& c, const MovedList& bound, size_t count) {
  return DimsOf(c, bound).value_or(std::vector<Dim>(count));
}

// The number of elements that all inputs (attributes) have, as far as one of them tells.
absl::StatusOr<std::optional<size_t>> CountBounds(const ShapeContext& c) {
  std::optional<size_t> count;
  for (int i = 1; i <= 4; ++i) {
    const Shape* shape = c.input_shape(i);
    if (shape == nullptr) continue;
    if (shape->rank() != 1) {
      return c.InputError(i, absl::StrCat("expected rank 1, got shape ", shape->ToString()));
    }
    if (!(*shape)[0].is_constant()) continue;
    const auto size = static_cast<size_t>(*(*shape)[0].constant());
    if (count && size != *count) return c.InputError(i, "expected as many elements as starts");
    count = size;
  }
  for (const MovedList& list : {kStarts, kEnds, kAxes}) {
    if (c.node().attribute(list.name) == nullptr) continue;
    const size_t size = DimsOf(c, list)->size();
    if (count && size != *count) {
      return c.AttributeError(list.name,
                              absl::StrCat("expected ", *count, " elements, got ", size));
    }
    count = size;
  }
  return count;
}

// Nullopt if the axes or the number of bounds are not known.
absl::StatusOr<std::optional<SliceInputs>> ReadInputs(const ShapeContext& c, int rank) {
  for (const MovedList& bound : {kStarts, kEnds}) {
    PF_ASSIGN_OR_RETURN(const bool is_given, IsGiven(c, bound));
    if (!is_given) return c.Error(absl::StrCat("expected ", std::string(bound.name), ", got none"));
  }
  PF_ASSIGN_OR_RETURN(const bool has_axes, IsGiven(c, kAxes));
  PF_ASSIGN_OR_RETURN(const std::optional<size_t> known, CountBounds(c));
  if (!known || *known > 64) return std::optional<SliceInputs>();
  const size_t count = *known;
  SliceInputs in;
  in.starts = Bounds(c, kStarts, count);
  in.ends = Bounds(c, kEnds, count);
  std::vector<int64_t> axes(count);
  for (size_t i = 0; i < count; ++i) axes[i] = static_cast<int64_t>(i);
  if (has_axes) {
    const std::optional<std::vector<int64_t>> given = IntsOf(c, kAxes);
    if (!given) return std::optional<SliceInputs>();
    axes = *given;
  }
  PF_ASSIGN_OR_RETURN(in.axes, ResolveAxes(c, axes, rank));
  in.steps.assign(count, 1);
  if (c.has_input(4)) {
    const std::optional<std::vector<int64_t>> given = c.input_ints(4);
    if (!given) return std::optional<SliceInputs>();
    in.steps = *given;
  }
  const bool has_zero = std::find(in.steps.begin(), in.steps.end(), 0) != in.steps.end();
  if (has_zero) return c.InputError(4, "a step is 0");
  return std::optional<SliceInputs>(std::move(in));
}

// Slices contents of rank 1.
void SliceContents(ShapeContext& c, const SliceInputs& in) {
  const std::optional<std::vector<Dim>> value = c.carried_value(0);
  if (!value || in.axes.size() != 1 || !in.starts[0].is_constant() || !in.ends[0].is_constant()) {
    return;
  }
  const Taken taken = Take(static_cast<int64_t>(value->size()), *in.starts[0].constant(),
                           *in.ends[0].constant(), in.steps[0]);
  std::vector<Dim> contents;
  for (int64_t i = 0; i < taken.count; ++i)
    contents.push_back((*value)[taken.start + i * taken.step]);
  c.SetOutputValue(0, std::move(contents));
}

absl::Status InferSlice(ShapeContext& c) {
  const Shape* x = c.input_shape(0);
  if (x == nullptr) return InferLikeInput(c);
  PF_ASSIGN_OR_RETURN(const std::optional<SliceInputs> in, ReadInputs(c, x->rank()));
  Shape y = *x;
  if (!in) {
    for (Dim& dim : y.dims()) dim = c.FreshDim();
    c.SetOutput(0, c.input_type(0), std::move(y));
    return absl::OkStatus();
  }
  for (size_t i = 0; i < in->axes.size(); ++i) {
    Dim& dim = y[in->axes[i]];
    dim = CountTaken(dim, in->starts[i], in->ends[i], in->steps[i]);
    if (!dim.known()) dim = c.FreshDim();
  }
  if (y.rank() == 1) SliceContents(c, *in);
  c.SetOutput(0, c.input_type(0), std::move(y));
  return absl::OkStatus();
}

absl::Status RunSlice(KernelArgs& args) {
  const TensorArg& x = args.input(0);
  const TensorArg& y = args.output(0);
  const std::vector<int64_t> starts = IndexValues(args, kStarts);
  const std::vector<int64_t> ends = IndexValues(args, kEnds);
  const std::vector<int64_t> axes = IndexValues(args, kAxes);
  const std::vector<int64_t> steps =
      args.input(4).present() ? IndexValues(args.input(4)) : std::vector<int64_t>();
  StridedBox box{y.dims, RowMajorStrides(x.dims), RowMajorStrides(y.dims)};
  int64_t origin = 0;
  for (size_t i = 0; i < starts.size(); ++i) {
    const int axis = axes.empty() ? static_cast<int>(i) : KernelAxis(axes[i], x.dims.size());
    const Taken taken = Take(x.dims[axis], starts[i], ends[i], steps.empty() ? 1 : steps[i]);
    if (taken.count == 0) return absl::OkStatus();
    origin += taken.start * box.from_strides[axis];
    // A step past the end is not walked, and its product might not fit.
    box.from_strides[axis] = taken.count > 1 ? taken.step * box.from_strides[axis] : 0;
  }
  const int64_t element_size = ElementSize(x.dtype);
  CopyBox(std::move(box), element_size, x.as<char>() + origin * element_size, y.data);
  return absl::OkStatus();
}

}  // namespace

OpDef SliceDef() {
  return OpDef("", "Slice", 1)
      .Doc(
          "Elements [start, end) of each named axis by steps; bounds count from the back where "
          "negative and are clamped, negative steps go backwards.")
      .Input("data", "T")
      .Input("starts", "Tind", "[n]; an attribute before opset 10", PortKind::kOptional,
             PortRole::kMetadata)
      .Input("ends", "Tind", "[n]; an attribute before opset 10", PortKind::kOptional,
             PortRole::kMetadata)
      .Input("axes", "Tind", "[n]", PortKind::kOptional, PortRole::kMetadata)
      .Input("steps", "Tind", "[n]", PortKind::kOptional, PortRole::kMetadata)
      .Output("output", "T")
      .Attr("starts", {}, "before opset 10")
      .Attr("ends", {}, "before opset 10")
      .Attr("axes", {}, "before opset 10")
      .Types("T", WideTypes())
      .Types("Tind", IndexTypes())
      .InferShapes(InferSlice)
      .AddKernel({.name = "reference", .run = RunSlice});
}

}  // namespace pagefuse::onnx_ops
