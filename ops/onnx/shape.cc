// SPDX-License-Identifier: Apache-2.0
// Shape and Size: the dims of a tensor as data.
#include <algorithm>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/onnx/movement.h"

namespace pagefuse::onnx_ops {
namespace {

struct Range {
  int begin;
  int end;
};

// The part of the dims that attributes `start` and `end` select; both count from the end where
// negative and are clamped.
absl::StatusOr<Range> Selected(const Node& node, int rank) {
  PF_ASSIGN_OR_RETURN(int64_t start, node.IntAttribute("start", 0));
  PF_ASSIGN_OR_RETURN(int64_t end, node.IntAttribute("end", rank));
  const auto clamp = [rank](int64_t i) {
    return static_cast<int>(std::clamp<int64_t>(i < 0 ? i + rank : i, 0, rank));
  };
  return Range{clamp(start), std::max(clamp(start), clamp(end))};
}

absl::Status InferShape(ShapeContext& c) {
  const Shape* x = c.input_shape(0);
  if (x == nullptr) {
    c.SetOutput(0, DataType::kInt64, Shape({c.FreshDim()}));
    return absl::OkStatus();
  }
  PF_ASSIGN_OR_RETURN(const Range range, Selected(c.node(), x->rank()));
  c.SetOutput(0, DataType::kInt64, Shape({Dim(range.end - range.begin)}));
  c.SetOutputValue(0, {x->dims().begin() + range.begin, x->dims().begin() + range.end});
  return absl::OkStatus();
}

absl::Status RunShape(KernelArgs& args) {
  const std::vector<int64_t>& dims = args.input(0).dims;
  PF_ASSIGN_OR_RETURN(const Range range, Selected(*args.node, static_cast<int>(dims.size())));
  std::copy(dims.begin() + range.begin, dims.begin() + range.end, args.output(0).as<int64_t>());
  return absl::OkStatus();
}

absl::Status InferSize(ShapeContext& c) {
  c.SetOutput(0, DataType::kInt64, Shape());
  const Shape* x = c.input_shape(0);
  if (x != nullptr) c.SetOutputValue(0, {Product(*x, 0, x->rank())});
  return absl::OkStatus();
}

absl::Status RunSize(KernelArgs& args) {
  *args.output(0).as<int64_t>() = args.input(0).size();
  return absl::OkStatus();
}

}  // namespace

OpDef ShapeDef() {
  return OpDef("", "Shape", 1)
      .Doc(
          "The dims [start, end) of the input as a list; both ends count from the back where "
          "negative.")
      .Input("data", "T")
      .Output("shape", "T1", "[end - start]")
      .Attr("start", int64_t{0}, "first axis")
      .Attr("end", std::monostate(), "axis after the last; all if absent")
      .Types("T", AllTypes())
      .Types("T1", {DataType::kInt64})
      .InferShapes(InferShape)
      .AddKernel({.name = "reference", .run = RunShape});
}

OpDef SizeDef() {
  return OpDef("", "Size", 1)
      .Doc("The number of elements of the input.")
      .Input("data", "T")
      .Output("size", "T1", "[]")
      .Types("T", AllTypes())
      .Types("T1", {DataType::kInt64})
      .InferShapes(InferSize)
      .AddKernel({.name = "reference", .run = RunSize});
}

}  // namespace pagefuse::onnx_ops
