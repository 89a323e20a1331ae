// SPDX-License-Identifier: Apache-2.0
// Pad: elements added (or, where negative, removed) at the ends of axes.
#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"

#include "pagefuse/base/packed_types.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/kernels/numeric/convert.h"
#include "pagefuse/ops/kernels/numeric/packed_elements.h"
#include "pagefuse/ops/onnx/movement.h"
#include "pagefuse/ops/schema/shape_checks.h"

namespace pagefuse::onnx_ops {
namespace {

constexpr MovedList kPads{1, "pads"};

// Elements added in front of and behind every axis of the data.
struct Pads {
  std::vector<Dim> before;
  std::vector<Dim> after;
};

absl::StatusOr<Pads> ReadPads(const ShapeContext& c, int rank) {
  Pads pads{std::vector<Dim>(rank, Dim(0)), std::vector<Dim>(rank, Dim(0))};
  std::vector<int64_t> axes(rank);
  for (int i = 0; i < rank; ++i) axes[i] = i;
  if (c.has_input(3)) {
    const std::optional<std::vector<int64_t>> given = c.input_ints(3);
    if (!given) return Pads{std::vector<Dim>(rank), std::vector<Dim>(rank)};
    axes = *given;
  }
  PF_ASSIGN_OR_RETURN(const std::vector<int> resolved, ResolveAxes(c, axes, rank));
  const size_t count = resolved.size();
  PF_ASSIGN_OR_RETURN(const bool has_pads, IsGiven(c, kPads));
  if (!has_pads) return c.Error("expected pads, got none");
  const std::optional<std::vector<Dim>> values = DimsOf(c, kPads);
  if (values && values->size() != 2 * count) {
    const std::string what =
        absl::StrCat("expected ", 2 * count, " elements, got ", values->size());
    return c.has_input(1) ? c.InputError(1, what) : c.AttributeError("pads", what);
  }
  for (size_t i = 0; i < count; ++i) {
    pads.before[resolved[i]] = values ? (*values)[i] : Dim();
    pads.after[resolved[i]] = values ? (*values)[count + i] : Dim();
  }
  return pads;
}

// Reflection must not leave the data, and there must be something to repeat.
absl::Status CheckMode(const ShapeContext& c, const Dim& size, const Dim& before,
                       const Dim& after) {
  PF_ASSIGN_OR_RETURN(const std::string mode, c.node().StringAttribute("mode", "constant"));
  const bool known = mode == "constant" || mode == "edge" || mode == "reflect" || mode == "wrap";
  if (!known) return c.AttributeError("mode", absl::StrCat("\"", mode, "\" is not known"));
  if (mode == "constant" || !size.is_constant()) return absl::OkStatus();
  const int64_t most = std::max(before.constant().value_or(0), after.constant().value_or(0));
  if (most > 0 && (*size.constant() == 0 || (mode == "reflect" && most >= *size.constant()))) {
    return c.Error(absl::StrCat("cannot pad an axis of ", *size.constant(), " elements by ", most,
                                " in mode ", mode));
  }
  return absl::OkStatus();
}

absl::Status InferPad(ShapeContext& c) {
  const Shape* x = c.input_shape(0);
  if (x == nullptr) return InferLikeInput(c);
  PF_ASSIGN_OR_RETURN(const Pads pads, ReadPads(c, x->rank()));
  Shape y = *x;
  for (int i = 0; i < y.rank(); ++i) {
    PF_RETURN_IF_ERROR(CheckMode(c, (*x)[i], pads.before[i], pads.after[i]));
    y[i] = y[i] + pads.before[i] + pads.after[i];
    if (!y[i].known()) y[i] = c.FreshDim();
    if (y[i].is_constant() && *y[i].constant() < 0) {
      return c.InputError(
          1, absl::StrCat("removes more than axis ", i, " of ", x->ToString(), " has"));
    }
  }
  PF_RETURN_IF_ERROR(ExpectOneElement(c, 2));
  c.SetOutput(0, c.input_type(0), std::move(y));
  return absl::OkStatus();
}

// The index of the data that padded index `i` (counted from the data's first element) shows.
int64_t SourceIndex(const std::string& mode, int64_t i, int64_t size) {
  if (mode == "edge") return std::clamp<int64_t>(i, 0, size - 1);
  if (mode == "reflect") return i < 0 ? -i : i >= size ? 2 * (size - 1) - i : i;
  return (i % size + size) % size;  // wrap
}

// Fills the output with one element and copies the box of the data that it shows.
void PadConstant(const TensorArg& x, const TensorArg& y, const std::vector<int64_t>& before,
                 const TensorArg& value) {
  const int64_t size = ElementSize(x.dtype);
  std::vector<char> element(size, 0);
  if (value.present()) std::memcpy(element.data(), value.data, size);
  CopyBox({{y.size()}, {0}, {1}}, size, element.data(), y.data);
  const std::vector<int64_t> from = RowMajorStrides(x.dims);
  StridedBox box{{}, from, RowMajorStrides(y.dims)};
  int64_t from_origin = 0;
  int64_t to_origin = 0;
  for (size_t i = 0; i < x.dims.size(); ++i) {
    const int64_t first = std::max<int64_t>(0, -before[i]);  // element of the data that is shown
    const int64_t last = std::min(x.dims[i], y.dims[i] - before[i]);
    if (last <= first) return;
    box.dims.push_back(last - first);
    from_origin += first * from[i];
    to_origin += (first + before[i]) * box.to_strides[i];
  }
  CopyBox(std::move(box), size, x.as<char>() + from_origin * size, y.as<char>() + to_origin * size);
}

// Every axis has a table of the source offset that each output index shows.
void PadByTables(const TensorArg& x, const TensorArg& y, const std::vector<int64_t>& before,
                 const std::string& mode) {
  const std::vector<int64_t> strides = RowMajorStrides(x.dims);
  std::vector<std::vector<int64_t>> tables(x.dims.size());
  for (size_t axis = 0; axis < x.dims.size(); ++axis) {
    for (int64_t i = 0; i < y.dims[axis]; ++i) {
      tables[axis].push_back(SourceIndex(mode, i - before[axis], x.dims[axis]) * strides[axis]);
    }
  }
  DispatchSize(ElementSize(x.dtype), [&]<typename T>(T*) {
    T* to = y.as<T>();
    for (int64_t k = 0, size = y.size(); k < size; ++k) {
      int64_t offset = 0;
      int64_t rest = k;
      for (size_t axis = x.dims.size(); axis-- > 0; rest /= y.dims[axis]) {
        offset += tables[axis][rest % y.dims[axis]];
      }
      to[k] = x.as<T>()[offset];
    }
  });
}

absl::Status RunPad(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const std::string mode, args.node->StringAttribute("mode", "constant"));
  TensorArg x = args.input(0);
  TensorArg y = args.output(0);
  const std::vector<int64_t> pads = IndexValues(args, kPads);
  std::vector<int64_t> before(x.dims.size(), 0);
  for (size_t i = 0; i < pads.size() / 2; ++i) {
    const int axis = args.input(3).present()
                         ? KernelAxis(IndexValues(args.input(3))[i], x.dims.size())
                         : static_cast<int>(i);
    before[axis] = pads[i];
  }
  TensorArg value = args.input(2);
  std::array<uint64_t, 2> number = {};  // of any type
  if (!value.present()) {
    PF_ASSIGN_OR_RETURN(const float given, args.node->FloatAttribute("value", 0.0f));
    if (given != 0) {
      PF_RETURN_IF_ERROR(EncodeFromFloat(x.dtype, &given, 1, number.data()));
      value = {x.dtype, {}, number.data()};
    }
  }
  uint8_t code = 0;
  const DataType type = x.dtype;
  return MoveElements(args, [&](int64_t element_size, const char* from, char* to) {
    if (element_size == 1 && IsPacked(type)) {  // one code a byte
      x.dtype = y.dtype = DataType::kUint8;
      if (value.present()) code = GetPacked(value.as<uint8_t>(), 0, BitWidth(type));
      value = {DataType::kUint8, {}, &code};
    }
    x.data = const_cast<char*>(from);
    y.data = to;
    if (mode == "constant") return PadConstant(x, y, before, value);
    PadByTables(x, y, before, mode);
  });
}

}  // namespace

OpDef PadDef() {
  return OpDef("", "Pad", 2)
      .Doc(
          "Adds elements at the ends of axes: a constant (0 by default), the edge, the reflection "
          "or the other end. Negative pads remove elements.")
      .Input("data", "T")
      .Input("pads", "int64", "[2 * axes]; an attribute before opset 11", PortKind::kOptional,
             PortRole::kMetadata)
      .Input("constant_value", "T", "[]", PortKind::kOptional)
      .Input("axes", "Tind", "[axes]", PortKind::kOptional, PortRole::kMetadata)
      .Output("output", "T")
      .Attr("mode", "constant", "constant, reflect, edge, wrap (opset 19)")
      .Attr("pads", {}, "before opset 11")
      .Attr("value", {}, "constant_value before opset 11, 0 by default")
      .Types("T", AllTypes())
      .Types("Tind", IndexTypes())
      .InferShapes(InferPad)
      .AddKernel({.name = "reference", .run = RunPad});
}

}  // namespace pagefuse::onnx_ops
