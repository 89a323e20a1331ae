// SPDX-License-Identifier: Apache-2.0
// Reshape and Flatten: the same elements under other dims.
#include <limits>

#include "absl/strings/str_cat.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/onnx/movement.h"

namespace pagefuse::onnx_ops {
namespace {

// a / b where that is the same positive number for all sizes; 0 if not.
int64_t Ratio(const Dim& a, const Dim& b) {
  if (!a.known() || !b.known() || b.terms().empty()) return 0;
  const int64_t divisor = b.terms().front().second;
  const int64_t dividend = a.terms().empty() ? 0 : a.terms().front().second;
  // The least number has no negative.
  if (divisor == -1 && dividend == std::numeric_limits<int64_t>::min()) return 0;
  const int64_t ratio = dividend / divisor;
  return ratio > 0 && ProvablyEqual(b * Dim(ratio), a) ? ratio : 0;
}

Dim ProductOf(const std::vector<Dim>& factors) {
  return Product(Shape(factors), 0, static_cast<int>(factors.size()));
}

// Takes a factor of `to` out of `from`: as a part of one dim, or as several of them.
void Cancel(Dim& factor, std::vector<Dim>& from) {
  for (Dim& dim : from) {
    if (const int64_t ratio = Ratio(dim, factor); ratio > 0) {
      dim = Dim(ratio);
      factor = Dim(1);
    } else if (const int64_t rest = dim.is_constant() ? 0 : Ratio(factor, dim); rest > 0) {
      dim = Dim(1);
      factor = Dim(rest);
    }
  }
}

// The dim that makes the product of `to` (without that dim) equal the product of `from`. Factors
// that both have cancel first, so that [batch, sequence, 64] to [batch, -1] is 64*sequence.
Dim MissingDim(ShapeContext& c, std::vector<Dim> from, std::vector<Dim> to) {
  for (Dim& factor : to) Cancel(factor, from);
  const Dim numerator = ProductOf(from);
  const Dim denominator = ProductOf(to);
  if (const int64_t ratio = Ratio(numerator, denominator); ratio > 0) return Dim(ratio);
  const Dim quotient = numerator.FloorDiv(denominator);
  return quotient.known() ? quotient : c.FreshDim();
}

absl::Status CheckCount(const ShapeContext& c, const Shape& from, const Shape& to) {
  const std::optional<std::vector<int64_t>> before = from.constant();
  const std::optional<std::vector<int64_t>> after = to.constant();
  if (!before || !after || ElementCount(*before) == ElementCount(*after)) return absl::OkStatus();
  return c.InputError(1, absl::StrCat("cannot reshape ", from.ToString(), " to ", to.ToString()));
}

// Resolves 0 (copy the dim) and finds -1 (at `*missing`, else -1 stays).
absl::StatusOr<Shape> RequestedShape(ShapeContext& c, const std::vector<Dim>& request,
                                     bool allow_zero, int* missing) {
  const Shape* x = c.input_shape(0);
  std::vector<Dim> dims;
  bool has_zero = false;
  for (int i = 0; i < static_cast<int>(request.size()); ++i) {
    Dim dim = request[i];
    if (dim == Dim(0) && !allow_zero) {
      if (x != nullptr && i >= x->rank()) {
        return c.InputError(
            1, absl::StrCat("element ", i, " is 0, but the data has rank ", x->rank()));
      }
      dim = x != nullptr ? (*x)[i] : Dim();
    } else if (dim == Dim(0)) {
      has_zero = true;
    } else if (dim == Dim(-1)) {
      if (*missing >= 0) return c.InputError(1, "two elements are -1");
      *missing = i;
    } else if (dim.is_constant() && *dim.constant() < 0) {
      return c.InputError(1, absl::StrCat("element ", i, " is ", *dim.constant()));
    }
    dims.push_back(dim.known() ? dim : c.FreshDim());
  }
  if (has_zero && *missing >= 0) return c.InputError(1, "has a 0 and a -1 with allowzero");
  return Shape(std::move(dims));
}

absl::Status SetReshaped(ShapeContext& c, Shape shape) {
  const std::optional<std::vector<Dim>> value = c.carried_value(0);
  if (value && shape.rank() <= 1) c.SetOutputValue(0, *value);
  c.SetOutput(0, c.input_type(0), std::move(shape));
  return absl::OkStatus();
}

absl::Status InferReshape(ShapeContext& c) {
  const Shape* target = c.input_shape(1);
  if (target != nullptr && target->rank() != 1) {
    return c.InputError(1, absl::StrCat("expected rank 1, got shape ", target->ToString()));
  }
  PF_ASSIGN_OR_RETURN(const int64_t allow_zero, c.node().IntAttribute("allowzero", 0));
  std::optional<std::vector<Dim>> request = c.input_value(1);
  if (!request && target != nullptr && (*target)[0].is_constant() &&
      *(*target)[0].constant() <= 64) {
    request = std::vector<Dim>(*(*target)[0].constant());  // only the rank is known
  }
  if (!request) {
    c.SetOutput(0, c.input_type(0), std::nullopt);
    return absl::OkStatus();
  }
  int missing = -1;
  PF_ASSIGN_OR_RETURN(Shape shape, RequestedShape(c, *request, allow_zero != 0, &missing));
  const Shape* x = c.input_shape(0);
  if (x == nullptr) {
    if (missing >= 0) shape[missing] = c.FreshDim();
    return SetReshaped(c, std::move(shape));
  }
  if (missing >= 0) {
    std::vector<Dim> others = shape.dims();
    others.erase(others.begin() + missing);
    const std::optional<std::vector<int64_t>> known = Shape(others).constant();
    if (known && ElementCount(*known).value_or(0) == 0) {
      return c.InputError(1, absl::StrCat("-1 has no answer in ", shape.ToString()));
    }
    shape[missing] = MissingDim(c, x->dims(), std::move(others));
  }
  PF_RETURN_IF_ERROR(CheckCount(c, *x, shape));
  return SetReshaped(c, std::move(shape));
}

absl::Status InferFlatten(ShapeContext& c) {
  const Shape* x = c.input_shape(0);
  if (x == nullptr) {
    c.SetOutput(0, c.input_type(0), Shape({c.FreshDim(), c.FreshDim()}));
    return absl::OkStatus();
  }
  PF_ASSIGN_OR_RETURN(int64_t axis, c.node().IntAttribute("axis", 1));
  if (axis < -x->rank() || axis > x->rank()) {
    return c.AttributeError("axis", absl::StrCat(axis, " is out of range for rank ", x->rank()));
  }
  if (axis < 0) axis += x->rank();
  const int split = static_cast<int>(axis);
  c.SetOutput(0, c.input_type(0), Shape({Product(*x, 0, split), Product(*x, split, x->rank())}));
  return absl::OkStatus();
}

}  // namespace

OpDef ReshapeDef() {
  return OpDef("", "Reshape", 5)
      .Doc(
          "The elements under another shape. In `shape`, -1 is what is left, and 0 copies the "
          "input's dim (with allowzero: is 0).")
      .Input("data", "T")
      .Input("shape", "int64", "[rank]", PortKind::kRequired, PortRole::kMetadata)
      .Output("reshaped", "T")
      .FlagAttr("allowzero", int64_t{0})
      .Types("T", AllTypes())
      .InferShapes(InferReshape)
      .View(0, 0)
      .AddKernel({.name = "reference", .run = CopyBytes});
}

OpDef FlattenDef() {
  return OpDef("", "Flatten", 1)
      .Doc("The elements as a matrix: axes before `axis` are the rows, the others the columns.")
      .Input("input", "T")
      .Output("output", "T", "[rows, columns]")
      .Attr("axis", int64_t{1})
      .Types("T", AllTypes())
      .InferShapes(InferFlatten)
      .View(0, 0)
      .AddKernel({.name = "reference", .run = CopyBytes});
}

}  // namespace pagefuse::onnx_ops
