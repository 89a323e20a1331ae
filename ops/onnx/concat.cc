// SPDX-License-Identifier: Apache-2.0
// Concat and Split: tensors joined along an axis, and cut.
#include <utility>

#include "absl/strings/str_cat.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/onnx/movement.h"
#include "pagefuse/ops/schema/shape_checks.h"

namespace pagefuse::onnx_ops {
namespace {

// --- Concat ---

// Dims off the axis must agree; a number is better than a symbol.
absl::Status JoinDims(const ShapeContext& c, int i, int axis, Shape& joined) {
  const Shape& next = *c.input_shape(i);
  if (next.rank() != joined.rank()) {
    return c.InputError(
        i, absl::StrCat("expected rank ", joined.rank(), ", got shape ", next.ToString()));
  }
  for (int d = 0; d < joined.rank(); ++d) {
    if (d == axis) {
      joined[d] = joined[d] + next[d];
    } else if (Differ(joined[d], next[d])) {
      return c.InputError(i, absl::StrCat("expected shape like ", c.input_shape(0)->ToString(),
                                          " off axis ", axis, ", got ", next.ToString()));
    } else if (next[d].is_constant() || !joined[d].known()) {
      joined[d] = next[d];
    }
  }
  return absl::OkStatus();
}

void ConcatContents(ShapeContext& c) {
  std::vector<Dim> contents;
  for (int i = 0; i < c.num_inputs(); ++i) {
    const std::optional<std::vector<Dim>> part = c.carried_value(i);
    const Shape& shape = *c.input_shape(i);
    if (part) {
      contents.insert(contents.end(), part->begin(), part->end());
    } else if (shape[0].is_constant() && *shape[0].constant() <= 64) {
      contents.resize(contents.size() + *shape[0].constant());  // elements that are not known
    } else {
      return;
    }
  }
  c.SetOutputValue(0, std::move(contents));
}

absl::Status InferConcat(ShapeContext& c) {
  PF_ASSIGN_OR_RETURN(const int64_t axis, c.node().IntAttribute("axis", 0));
  const Shape* known = nullptr;
  bool all_known = true;
  for (int i = 0; i < c.num_inputs(); ++i) {
    if (c.input_shape(i) == nullptr)
      all_known = false;
    else
      known = known == nullptr ? c.input_shape(i) : known;
  }
  if (known == nullptr) {
    c.SetOutput(0, c.input_type(0), std::nullopt);
    return absl::OkStatus();
  }
  PF_ASSIGN_OR_RETURN(const int resolved, ResolveAxis(c, axis, known->rank()));
  Shape joined = *known;
  if (!all_known) {
    joined[resolved] = c.FreshDim();
  } else {
    joined = *c.input_shape(0);
    for (int i = 1; i < c.num_inputs(); ++i) PF_RETURN_IF_ERROR(JoinDims(c, i, resolved, joined));
    if (!joined[resolved].known()) joined[resolved] = c.FreshDim();
    if (joined.rank() == 1 && IsInteger(c.input_type(0))) ConcatContents(c);
  }
  c.SetOutput(0, c.input_type(0), std::move(joined));
  return absl::OkStatus();
}

// Copies between a part along `axis` and the whole, in which the part starts at `offset`.
struct PartCopy {
  const std::vector<int64_t>& part_dims;
  const std::vector<int64_t>& whole_dims;
  int axis;
  int64_t element_size;

  void Run(const void* part, void* whole, int64_t offset, bool to_whole) const {
    const int64_t inner = Product(part_dims, axis + 1, part_dims.size()) * element_size;
    const int64_t run = part_dims[axis] * inner;
    const int64_t row = whole_dims[axis] * inner;
    const int64_t outer = Product(part_dims, 0, axis);
    auto* inside = static_cast<char*>(whole) + offset * inner;
    // Bytes as elements: runs are contiguous on both sides.
    StridedBox box{{outer, run}, {to_whole ? run : row, 1}, {to_whole ? row : run, 1}};
    if (to_whole) {
      CopyBox(std::move(box), 1, part, inside);
    } else {
      CopyBox(std::move(box), 1, inside, const_cast<void*>(part));
    }
  }
};

absl::Status RunConcat(KernelArgs& args) {
  const TensorArg& y = args.output(0);
  PF_ASSIGN_OR_RETURN(const int axis, AxisOf(*args.node, y.dims, 0));
  int64_t offset = 0;
  for (const TensorArg& x : args.inputs) {
    PartCopy{x.dims, y.dims, axis, ElementSize(x.dtype)}.Run(x.data, y.data, offset, true);
    offset += x.dims[axis];
  }
  return absl::OkStatus();
}

// --- Split ---

constexpr MovedList kSplit{1, "split"};

// The sizes of the parts from "split"; else equal parts, of which the last may be smaller
// (num_outputs, opset 18).
absl::StatusOr<std::vector<Dim>> PartSizes(ShapeContext& c, const Dim& size) {
  const int parts = c.num_outputs();
  PF_ASSIGN_OR_RETURN(const bool has_sizes, IsGiven(c, kSplit));
  if (has_sizes) {
    const std::optional<std::vector<Dim>> sizes = DimsOf(c, kSplit);
    if (!sizes) return std::vector<Dim>(parts);
    if (static_cast<int>(sizes->size()) != parts) {
      return c.InputError(1, absl::StrCat("expected ", parts, " sizes, got ", sizes->size()));
    }
    Dim total(0);
    for (const Dim& part : *sizes) {
      if (part.is_constant() && *part.constant() < 0) return c.InputError(1, "a size is negative");
      total = total + part;
    }
    if (!total.is_constant() && Shape(*sizes).constant()) {
      return c.InputError(1, "the sum of the sizes is no 64-bit number");
    }
    if (Differ(total, size)) {
      return c.InputError(
          1, absl::StrCat("sizes add up to ", total.ToString(), ", expected ", size.ToString()));
    }
    return *sizes;
  }
  PF_ASSIGN_OR_RETURN(const int64_t count, c.node().IntAttribute("num_outputs", parts));
  if (count != parts) {
    return c.AttributeError("num_outputs",
                            absl::StrCat("is ", count, ", but there are ", parts, " outputs"));
  }
  if (!size.is_constant()) {
    const Dim even = size.FloorDiv(Dim(parts));
    // An expression that divides without rest; else the parts may differ.
    return std::vector<Dim>(parts, ProvablyEqual(even * Dim(parts), size) ? even : Dim());
  }
  const int64_t total = *size.constant();
  const int64_t part = total / parts + (total % parts == 0 ? 0 : 1);
  if (part * (parts - 1) > total || (c.opset() < 18 && total % parts != 0)) {
    return c.Error(absl::StrCat("cannot split ", total, " into ", parts, " equal parts"));
  }
  std::vector<Dim> sizes(parts, Dim(part));
  sizes.back() = Dim(total - part * (parts - 1));
  return sizes;
}

absl::Status InferSplit(ShapeContext& c) {
  const Shape* x = c.input_shape(0);
  if (x == nullptr) {
    for (int i = 0; i < c.num_outputs(); ++i) c.SetOutput(i, c.input_type(0), std::nullopt);
    return absl::OkStatus();
  }
  PF_ASSIGN_OR_RETURN(const int axis, AxisAttribute(c, x->rank(), 0));
  PF_ASSIGN_OR_RETURN(const std::vector<Dim> sizes, PartSizes(c, (*x)[axis]));
  const std::optional<std::vector<Dim>> value =
      x->rank() == 1 && Shape(sizes).constant() ? c.carried_value(0) : std::nullopt;
  int64_t begin = 0;
  for (int i = 0; i < c.num_outputs(); ++i) {
    Shape part = *x;
    part[axis] = sizes[i].known() ? sizes[i] : c.FreshDim();
    if (value) {
      const int64_t end = begin + *sizes[i].constant();
      c.SetOutputValue(i, {value->begin() + begin, value->begin() + end});
      begin = end;
    }
    c.SetOutput(i, c.input_type(0), std::move(part));
  }
  return absl::OkStatus();
}

absl::Status RunSplit(KernelArgs& args) {
  const TensorArg& x = args.input(0);
  PF_ASSIGN_OR_RETURN(const int axis, AxisOf(*args.node, x.dims, 0));
  std::vector<int64_t> sizes = IndexValues(args, kSplit);
  if (sizes.empty()) {
    const int64_t parts = static_cast<int64_t>(args.outputs.size());
    sizes.assign(args.outputs.size(), (x.dims[axis] + parts - 1) / parts);
  }
  int64_t offset = 0;
  for (size_t i = 0; i < args.outputs.size(); ++i) {
    const TensorArg& y = args.outputs[i];
    if (y.present()) {
      PartCopy{y.dims, x.dims, axis, ElementSize(x.dtype)}.Run(y.data, x.data, offset, false);
    }
    offset += sizes[i];
  }
  return absl::OkStatus();
}

}  // namespace

OpDef ConcatDef() {
  return OpDef("", "Concat", 4)
      .Doc("The inputs one after the other along an axis; other dims agree.")
      .Input("inputs", "T", "", PortKind::kVariadic)
      .Output("concat_result", "T")
      .RequiredAttr("axis")
      .Types("T", WideTypes())
      .InferShapes(InferConcat)
      .AddKernel({.name = "reference", .run = RunConcat});
}

OpDef SplitDef() {
  return OpDef("", "Split", 2)
      .Doc(
          "Parts of the input along an axis: of the sizes in `split`, else equal ones of which the "
          "last may be smaller.")
      .Input("input", "T")
      .Input("split", "int64", "[outputs]", PortKind::kOptional, PortRole::kMetadata)
      .Output("outputs", "T", "", PortKind::kVariadic)
      .Attr("axis", int64_t{0})
      .Attr("split", {}, "before opset 13")
      .Attr("num_outputs", std::monostate(), "number of outputs, without `split` (opset 18)")
      .Types("T", WideTypes())
      .InferShapes(InferSplit)
      .AddKernel({.name = "reference", .run = RunSplit});
}

}  // namespace pagefuse::onnx_ops
