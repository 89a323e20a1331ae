// SPDX-License-Identifier: Apache-2.0
// Expand and Tile: the input repeated.
#include "absl/strings/str_cat.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/onnx/movement.h"

namespace pagefuse::onnx_ops {
namespace {

absl::Status InferExpand(ShapeContext& c) {
  const Shape* x = c.input_shape(0);
  const Shape* target = c.input_shape(1);
  std::optional<std::vector<Dim>> request = c.input_value(1);
  if (!request && target != nullptr && target->rank() == 1 && (*target)[0].is_constant() &&
      *(*target)[0].constant() <= 64) {
    request = std::vector<Dim>(*(*target)[0].constant());  // only the rank is known
  }
  if (x == nullptr || !request) {
    c.SetOutput(0, c.input_type(0), std::nullopt);
    return absl::OkStatus();
  }
  for (Dim& dim : *request) {
    if (dim.is_constant() && *dim.constant() < 0) return c.InputError(1, "has a negative dim");
    if (!dim.known()) dim = c.FreshDim();
  }
  PF_ASSIGN_OR_RETURN(Shape shape, BroadcastShapes(c, *x, Shape(*std::move(request))));
  const std::optional<std::vector<Dim>> value = c.carried_value(0);
  if (value && value->size() == 1 && shape.rank() <= 1) {
    const Dim count = shape.rank() == 0 ? Dim(1) : shape[0];
    if (count.is_constant() && *count.constant() <= 64) {
      c.SetOutputValue(0, std::vector<Dim>(*count.constant(), value->front()));
    }
  }
  c.SetOutput(0, c.input_type(0), std::move(shape));
  return absl::OkStatus();
}

absl::Status RunExpand(KernelArgs& args) {
  const TensorArg& x = args.input(0);
  const TensorArg& y = args.output(0);
  const std::vector<int64_t> strides = RowMajorStrides(x.dims);
  StridedBox box{y.dims, std::vector<int64_t>(y.dims.size(), 0), RowMajorStrides(y.dims)};
  const size_t added = y.dims.size() - x.dims.size();
  for (size_t i = 0; i < x.dims.size(); ++i) {
    if (x.dims[i] != 1) box.from_strides[added + i] = strides[i];
  }
  CopyBox(std::move(box), ElementSize(x.dtype), x.data, y.data);
  return absl::OkStatus();
}

absl::Status InferTile(ShapeContext& c) {
  const Shape* x = c.input_shape(0);
  if (x == nullptr) return InferLikeInput(c);
  const std::optional<std::vector<Dim>> repeats = c.input_value(1);
  if (repeats && static_cast<int>(repeats->size()) != x->rank()) {
    return c.InputError(1,
                        absl::StrCat("expected ", x->rank(), " elements, got ", repeats->size()));
  }
  Shape y = *x;
  for (int i = 0; i < x->rank(); ++i) {
    const Dim times = repeats ? (*repeats)[i] : Dim();
    if (times.is_constant() && *times.constant() < 0) return c.InputError(1, "is negative");
    y[i] = y[i] * times;
    if (!y[i].known()) y[i] = c.FreshDim();
  }
  c.SetOutput(0, c.input_type(0), std::move(y));
  return absl::OkStatus();
}

absl::Status RunTile(KernelArgs& args) {
  const TensorArg& x = args.input(0);
  const TensorArg& y = args.output(0);
  const std::vector<int64_t> from = RowMajorStrides(x.dims);
  const std::vector<int64_t> to = RowMajorStrides(y.dims);
  StridedBox box;  // every axis as (which copy, element)
  for (size_t i = 0; i < x.dims.size(); ++i) {
    box.dims.push_back(x.dims[i] == 0 ? 0 : y.dims[i] / x.dims[i]);
    box.from_strides.push_back(0);
    box.to_strides.push_back(to[i] * x.dims[i]);
    box.dims.push_back(x.dims[i]);
    box.from_strides.push_back(from[i]);
    box.to_strides.push_back(to[i]);
  }
  CopyBox(std::move(box), ElementSize(x.dtype), x.data, y.data);
  return absl::OkStatus();
}

}  // namespace

OpDef ExpandDef() {
  return OpDef("", "Expand", 8)
      .Doc("The input broadcast with `shape`, both ways: a 1 in `shape` keeps the input's dim.")
      .Input("input", "T")
      .Input("shape", "int64", "[rank]", PortKind::kRequired, PortRole::kMetadata)
      .Output("output", "T")
      .Types("T", WideTypes())
      .InferShapes(InferExpand)
      .AddKernel({.name = "reference", .run = RunExpand});
}

OpDef TileDef() {
  return OpDef("", "Tile", 6)
      .Doc("The input repeats[i] times along each axis i.")
      .Input("input", "T")
      .Input("repeats", "int64", "[rank]", PortKind::kRequired, PortRole::kMetadata)
      .Output("output", "T")
      .Types("T", WideTypes())
      .InferShapes(InferTile)
      .AddKernel({.name = "reference", .run = RunTile});
}

}  // namespace pagefuse::onnx_ops
