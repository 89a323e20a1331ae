// SPDX-License-Identifier: Apache-2.0
// Squeeze, Unsqueeze and Identity: axes of size 1 come and go.
#include <algorithm>

#include "absl/strings/str_cat.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/onnx/movement.h"
#include "pagefuse/ops/schema/shape_checks.h"

namespace pagefuse::onnx_ops {
namespace {

constexpr MovedList kAxes{1, "axes"};

absl::Status SetOutput(ShapeContext& c, std::optional<Shape> shape) {
  const std::optional<std::vector<Dim>> value = c.carried_value(0);
  if (value && shape && shape->rank() <= 1) c.SetOutputValue(0, *value);
  c.SetOutput(0, c.input_type(0), std::move(shape));
  return absl::OkStatus();
}

// Without axes every dim of size 1 goes; which ones those are must be known of all.
absl::Status SqueezeAll(ShapeContext& c, const Shape& x) {
  std::vector<Dim> dims;
  for (const Dim& dim : x.dims()) {
    if (!dim.is_constant()) return SetOutput(c, std::nullopt);
    if (dim != Dim(1)) dims.push_back(dim);
  }
  return SetOutput(c, Shape(std::move(dims)));
}

absl::Status InferSqueeze(ShapeContext& c) {
  const Shape* x = c.input_shape(0);
  PF_ASSIGN_OR_RETURN(const bool names_axes, IsGiven(c, kAxes));
  if (x == nullptr) return SetOutput(c, std::nullopt);
  if (!names_axes) return SqueezeAll(c, *x);
  const std::optional<std::vector<int64_t>> axes = IntsOf(c, kAxes);
  if (!axes) return SetOutput(c, std::nullopt);
  PF_ASSIGN_OR_RETURN(const std::vector<int> gone, ResolveAxes(c, *axes, x->rank()));
  std::vector<Dim> dims;
  for (int i = 0; i < x->rank(); ++i) {
    if (std::find(gone.begin(), gone.end(), i) == gone.end()) {
      dims.push_back((*x)[i]);
    } else if ((*x)[i].is_constant() && (*x)[i] != Dim(1)) {
      return c.InputError(
          0, absl::StrCat("axis ", i, " of shape ", x->ToString(), " cannot be squeezed"));
    }
  }
  return SetOutput(c, Shape(std::move(dims)));
}

absl::Status InferUnsqueeze(ShapeContext& c) {
  PF_ASSIGN_OR_RETURN(const bool names_axes, IsGiven(c, kAxes));
  if (!names_axes) return c.Error("expected axes, got none");
  const Shape* x = c.input_shape(0);
  const std::optional<std::vector<int64_t>> axes = IntsOf(c, kAxes);
  if (x == nullptr || !axes) return SetOutput(c, std::nullopt);
  const int rank = x->rank() + static_cast<int>(axes->size());
  PF_ASSIGN_OR_RETURN(const std::vector<int> added, ResolveAxes(c, *axes, rank));
  std::vector<Dim> dims;
  for (int i = 0, next = 0; i < rank; ++i) {
    const bool is_added = std::find(added.begin(), added.end(), i) != added.end();
    dims.push_back(is_added ? Dim(1) : (*x)[next++]);
  }
  return SetOutput(c, Shape(std::move(dims)));
}

absl::Status InferIdentity(ShapeContext& c) {
  const Shape* x = c.input_shape(0);
  return SetOutput(c, CopyOf(x));
}

}  // namespace

OpDef SqueezeDef() {
  return OpDef("", "Squeeze", 1)
      .Doc("Removes axes of size 1: those named, or all.")
      .Input("data", "T")
      .Input("axes", "int64", "[n]", PortKind::kOptional, PortRole::kMetadata)
      .Output("squeezed", "T")
      .Attr("axes", {}, "before opset 13")
      .Types("T", AllTypes())
      .InferShapes(InferSqueeze)
      .View(0, 0)
      .AddKernel({.name = "reference", .run = CopyBytes});
}

OpDef UnsqueezeDef() {
  return OpDef("", "Unsqueeze", 1)
      .Doc("Inserts axes of size 1; `axes` are positions in the output.")
      .Input("data", "T")
      .Input("axes", "int64", "[n]; an attribute before opset 13", PortKind::kOptional,
             PortRole::kMetadata)
      .Output("expanded", "T")
      .Attr("axes", {}, "before opset 13")
      .Types("T", AllTypes())
      .InferShapes(InferUnsqueeze)
      .View(0, 0)
      .AddKernel({.name = "reference", .run = CopyBytes});
}

OpDef IdentityDef() {
  return OpDef("", "Identity", 1)
      .Doc("The input.")
      .Input("input", "T", "[...]")
      .Output("output", "T", "[...]")
      .Types("T", AllTypes())
      .InferShapes(InferIdentity)
      .View(0, 0)
      .AddKernel({.name = "reference", .run = CopyBytes});
}

}  // namespace pagefuse::onnx_ops
