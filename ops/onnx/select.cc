// SPDX-License-Identifier: Apache-2.0
// Where, NonZero, Trilu and OneHot: elements chosen by conditions and positions.
#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"

#include "pagefuse/base/parallel.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/kernels/numeric/dispatch.h"
#include "pagefuse/ops/onnx/movement.h"
#include "pagefuse/ops/onnx/strided_loop.h"
#include "pagefuse/ops/schema/shape_checks.h"

namespace pagefuse::onnx_ops {
namespace {

// --- Where ---

absl::Status InferWhere(ShapeContext& c) {
  std::optional<Shape> shape;
  bool known = true;
  for (int i = 0; i < 3; ++i) known = known && c.input_shape(i) != nullptr;
  if (known) {
    PF_ASSIGN_OR_RETURN(shape, BroadcastShapes(c, *c.input_shape(0), *c.input_shape(1)));
    PF_ASSIGN_OR_RETURN(shape, BroadcastShapes(c, *shape, *c.input_shape(2)));
  }
  const auto condition = c.carried_value(0);
  const auto x = c.carried_value(1);
  const auto y = c.carried_value(2);
  const bool has_contents = shape && shape->rank() <= 1 && condition && x && y;
  if (has_contents) {
    const size_t size = std::max({condition->size(), x->size(), y->size()});
    const auto at = [](const std::vector<Dim>& v, size_t i) { return v[v.size() == 1 ? 0 : i]; };
    std::vector<Dim> contents;
    for (size_t i = 0; i < size && !x->empty() && !y->empty() && !condition->empty(); ++i) {
      const Dim chosen = at(*condition, i);
      const Dim a = at(*x, i);
      const Dim b = at(*y, i);
      const bool decided = chosen.is_constant();
      contents.push_back(decided ? (chosen != Dim(0) ? a : b) : ProvablyEqual(a, b) ? a : Dim());
    }
    c.SetOutputValue(0, std::move(contents));
  }
  c.SetOutput(0, c.input_type(1), std::move(shape));
  return absl::OkStatus();
}

// Strides of an input in the output's dims, 0 where it is broadcast.
std::vector<int64_t> BroadcastStrides(const TensorArg& x, const std::vector<int64_t>& dims) {
  std::vector<int64_t> strides(dims.size(), 0);
  const std::vector<int64_t> own = RowMajorStrides(x.dims);
  const size_t added = dims.size() - x.dims.size();
  for (size_t i = 0; i < x.dims.size(); ++i) {
    if (x.dims[i] != 1) strides[added + i] = own[i];
  }
  return strides;
}

struct RowStrides {
  int64_t condition, x, y;
};

// Strides 0 or 1 that the compiler knows; without branches, as conditions may come in any order.
template <int64_t x_stride, int64_t y_stride, typename T>
void ChooseRow(const uint8_t* condition, const T* x, const T* y, T* to, int64_t size) {
  for (int64_t i = 0; i < size; ++i) {
    const T mask = static_cast<T>(T{0} - static_cast<T>(condition[i] != 0));
    to[i] = static_cast<T>((x[i * x_stride] & mask) | (y[i * y_stride] & static_cast<T>(~mask)));
  }
}

template <typename T>
struct WhereInputs {
  const uint8_t* condition;
  const T *x, *y;
};

template <typename T>
void WhereRow(const WhereInputs<T>& from, RowStrides s, int64_t size, T* to) {
  const auto& [condition, x, y] = from;
  if constexpr (std::is_integral_v<T>) {
    if (s.condition == 1) {
      const auto choose = s.x == 1 ? (s.y == 1 ? ChooseRow<1, 1, T> : ChooseRow<1, 0, T>)
                                   : (s.y == 1 ? ChooseRow<0, 1, T> : ChooseRow<0, 0, T>);
      return choose(condition, x, y, to, size);
    }
  }
  for (int64_t i = 0; i < size; ++i) {
    to[i] = condition[i * s.condition] ? x[i * s.x] : y[i * s.y];
  }
}

absl::Status RunWhere(KernelArgs& args) {
  const TensorArg& out = args.output(0);
  if (out.size() == 0) return absl::OkStatus();
  std::vector<int64_t> outer = out.dims;
  std::array<std::vector<int64_t>, 3> strides;
  for (int i = 0; i < 3; ++i) strides[i] = BroadcastStrides(args.input(i), out.dims);
  int64_t row = 1;
  RowStrides along{0, 0, 0};
  if (!outer.empty()) {
    row = outer.back();
    along = {strides[0].back(), strides[1].back(), strides[2].back()};
    outer.pop_back();
    for (auto& s : strides) s.pop_back();
  }
  DispatchSize(ElementSize(out.dtype), [&]<typename T>(T*) {
    ParallelFor(out.size() / row, row, [&](int64_t begin, int64_t end) {
      T* to = out.as<T>() + begin * row;
      ForEachPoint<3>(outer, {strides[0], strides[1], strides[2]}, {begin, end},
                      [&](const auto& offset) {
                        const WhereInputs<T> from = {args.input(0).as<uint8_t>() + offset[0],
                                                     args.input(1).as<T>() + offset[1],
                                                     args.input(2).as<T>() + offset[2]};
                        WhereRow(from, along, row, to);
                        to += row;
                      });
    });
  });
  return absl::OkStatus();
}

// --- NonZero ---

// Calls f(k) for each element that is not zero (NaN and -0 as C++ has it).
template <typename F>
absl::Status ForEachNonZero(DataType type, const void* data, int64_t size, const F& f) {
  return DispatchType(type, [&]<typename T>() {
    const T* x = static_cast<const T*>(data);
    for (int64_t k = 0; k < size; ++k) {
      if constexpr (kIsSmallFloat<T>) {
        if (static_cast<float>(x[k]) != 0.0f) f(k);
      } else {
        if (x[k] != T(0)) f(k);
      }
    }
  });
}

absl::Status InferNonZero(ShapeContext& c) {
  const Shape* x = c.input_shape(0);
  // A scalar has no axes, and so no rows.
  const Dim rank = x != nullptr ? Dim(x->rank()) : c.FreshDim();
  if (const Tensor* tensor = c.input_tensor(0)) {
    int64_t count = 0;
    PF_RETURN_IF_ERROR(
        ForEachNonZero(tensor->dtype(), tensor->data(), tensor->size(), [&](int64_t) { ++count; }));
    c.SetOutput(0, DataType::kInt64, Shape({rank, Dim(count)}));
    return absl::OkStatus();
  }
  c.SetOutput(0, DataType::kInt64, Shape({rank, c.FreshDim()}));
  return absl::OkStatus();
}

absl::Status RunNonZero(KernelArgs& args) {
  const TensorArg& x = args.input(0);
  const TensorArg& y = args.output(0);
  const std::vector<int64_t> strides = RowMajorStrides(x.dims);
  const int64_t count = y.dims[1];
  int64_t found = 0;
  return ForEachNonZero(x.dtype, x.data, x.size(), [&](int64_t k) {
    if (found >= count) return;
    for (size_t axis = 0; axis < x.dims.size(); ++axis) {
      y.as<int64_t>()[static_cast<int64_t>(axis) * count + found] =
          k / strides[axis] % x.dims[axis];
    }
    ++found;
  });
}

// --- Trilu ---

absl::Status InferTrilu(ShapeContext& c) {
  const Shape* x = c.input_shape(0);
  if (x != nullptr && x->rank() < 2) {
    return c.InputError(0, absl::StrCat("expected rank 2 or more, got shape ", x->ToString()));
  }
  PF_RETURN_IF_ERROR(ExpectOneElement(c, 1));
  return InferLikeInput(c);
}

absl::Status RunTrilu(KernelArgs& args) {
  const TensorArg& x = args.input(0);
  const TensorArg& y = args.output(0);
  PF_ASSIGN_OR_RETURN(const int64_t upper, args.node->IntAttribute("upper", 1));
  const int64_t rows = x.dim(-2);
  const int64_t columns = x.dim(-1);
  int64_t k = args.input(1).present() ? *args.input(1).as<int64_t>() : 0;
  k = std::clamp(k, -rows - 1, columns + 1);
  const int64_t size = ElementSize(x.dtype);
  if (y.size() == 0) return absl::OkStatus();
  for (int64_t row = 0; row < y.size() / columns; ++row) {
    // Columns [0, first) are under the diagonal k; an upper triangle keeps those from it on.
    const int64_t first = std::clamp<int64_t>(row % rows + k + (upper != 0 ? 0 : 1), 0, columns);
    const int64_t keep_begin = upper != 0 ? first : 0;
    const int64_t keep_end = upper != 0 ? columns : first;
    char* to = y.as<char>() + row * columns * size;
    const char* from = x.as<char>() + row * columns * size;
    std::memmove(to + keep_begin * size, from + keep_begin * size, (keep_end - keep_begin) * size);
    std::memset(to, 0, keep_begin * size);
    std::memset(to + keep_end * size, 0, (columns - keep_end) * size);
  }
  return absl::OkStatus();
}

// --- OneHot ---

absl::Status InferOneHot(ShapeContext& c) {
  const Shape* indices = c.input_shape(0);
  if (indices == nullptr) {
    c.SetOutput(0, c.input_type(2), std::nullopt);
    return absl::OkStatus();
  }
  PF_ASSIGN_OR_RETURN(const int axis, AxisAttribute(c, indices->rank() + 1, -1));
  const std::optional<std::vector<Dim>> value = c.input_value(1);
  Dim depth = value && value->size() == 1 ? value->front() : Dim();
  if (const Tensor* tensor = c.input_tensor(1); tensor != nullptr && !depth.known()) {
    if (tensor->size() != 1) return c.InputError(1, "expected one element");
    PF_RETURN_IF_ERROR(DispatchType(tensor->dtype(), [&]<typename T>() {
      depth = Dim(ConvertElement<int64_t>(tensor->values<T>()[0]));
    }));
  }
  if (depth.is_constant() && *depth.constant() < 0) return c.InputError(1, "depth is negative");
  const Shape* values = c.input_shape(2);
  if (values != nullptr && values->constant() && *values->constant() != std::vector<int64_t>{2}) {
    return c.InputError(2, absl::StrCat("expected shape [2], got ", values->ToString()));
  }
  std::vector<Dim> dims = indices->dims();
  dims.insert(dims.begin() + axis, depth.known() ? depth : c.FreshDim());
  c.SetOutput(0, c.input_type(2), Shape(std::move(dims)));
  return absl::OkStatus();
}

absl::Status RunOneHot(KernelArgs& args) {
  const TensorArg& indices = args.input(0);
  const TensorArg& y = args.output(0);
  PF_ASSIGN_OR_RETURN(const int axis, AxisOf(*args.node, y.dims, -1));
  const int64_t depth = y.dims[axis];
  const int64_t inner = Product(y.dims, axis + 1, y.dims.size());
  const int64_t size = ElementSize(y.dtype);
  const char* values = args.input(2).as<char>();  // off, on
  CopyBox({{y.size()}, {0}, {1}}, size, values, y.data);
  return DispatchType(indices.dtype, [&]<typename T>() {
    for (int64_t k = 0, count = indices.size(); k < count; ++k) {
      int64_t index = ConvertElement<int64_t>(indices.as<T>()[k]);
      if (index < 0) index += depth;
      if (index < 0 || index >= depth) continue;  // names no place: all off
      const int64_t to = (k / inner * depth + index) * inner + k % inner;
      std::memcpy(y.as<char>() + to * size, values + size, size);
    }
  });
}

}  // namespace

OpDef WhereDef() {
  return OpDef("", "Where", 9)
      .Doc("x where the condition holds, else y; all three broadcast.")
      .Input("condition", "B")
      .Input("X", "T")
      .Input("Y", "T")
      .Output("output", "T")
      .Types("T", WideTypes())
      .Types("B", {DataType::kBool})
      .InferShapes(InferWhere)
      .AddKernel({.name = "reference", .run = RunWhere})
      .Elementwise();
}

OpDef NonZeroDef() {
  std::vector<DataType> types = NumberTypes();
  types.push_back(DataType::kBool);
  return OpDef("", "NonZero", 9)
      .Doc("The indices of the elements that are not zero, in row-major order, one row an axis.")
      .Input("X", "T")
      .Output("Y", "int64", "[rank, n]")
      .Types("T", types)
      .InferShapes(InferNonZero)
      .AddKernel({.name = "reference", .run = RunNonZero});
}

OpDef TriluDef() {
  return OpDef("", "Trilu", 14)
      .Doc(
          "The upper (lower) triangle of the matrices, from diagonal k on (up to it); the rest is "
          "0.")
      .Input("input", "T", "[..., N, M]")
      .Input("k", "int64", "[]", PortKind::kOptional)
      .Output("output", "T", "[..., N, M]")
      .FlagAttr("upper", int64_t{1})
      .Types("T", WideTypes())
      .InferShapes(InferTrilu)
      .InPlace(0, 0)
      .AddKernel({.name = "reference", .run = RunTrilu});
}

OpDef OneHotDef() {
  return OpDef("", "OneHot", 9)
      .Doc(
          "A new axis of size `depth` with values[1] at the index and values[0] elsewhere; indices "
          "outside [-depth, depth) name no place.")
      .Input("indices", "T1")
      .Input("depth", "T2", "[]")
      .Input("values", "T3", "[2]")
      .Output("output", "T3")
      .Attr("axis", int64_t{-1}, "of the output")
      .Types("T3", WideTypes())
      .Types("T1", NumberTypes())
      .Types("T2", NumberTypes())
      .InferShapes(InferOneHot)
      .AddKernel({.name = "reference", .run = RunOneHot});
}

}  // namespace pagefuse::onnx_ops
