// SPDX-License-Identifier: Apache-2.0
// Constant, ConstantOfShape and Range: tensors out of nothing.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "pagefuse/base/packed_types.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/status_place.h"
#include "pagefuse/ir/tensor/tensor_of.h"
#include "pagefuse/ops/kernels/numeric/dispatch.h"
#include "pagefuse/ops/kernels/numeric/packed_elements.h"
#include "pagefuse/ops/onnx/movement.h"
#include "pagefuse/ops/schema/shape_checks.h"

namespace pagefuse::onnx_ops {
namespace {

// --- Constant ---

// The tensor that one of the value attributes means.
absl::StatusOr<Tensor> ConstantTensor(const Node& node) {
  if (node.attributes().size() != 1) return NodeError(node, "expected one value attribute");
  const auto& [name, attribute] = node.attributes().front();
  if (const auto* tensor = std::get_if<Tensor>(&attribute.value); tensor && name == "value") {
    return *tensor;
  }
  if (const auto* value = std::get_if<int64_t>(&attribute.value)) return Tensor::Scalar(*value);
  if (const auto* value = std::get_if<float>(&attribute.value)) return Tensor::Scalar(*value);
  const auto list_of = [&node](const auto& values) -> absl::StatusOr<Tensor> {
    auto list = TensorOf({static_cast<int64_t>(values.size())}, values);
    PF_RETURN_IF_ERROR(AtPlace(node.Description(), list.status()));
    return list;
  };
  if (const auto* list = std::get_if<std::vector<int64_t>>(&attribute.value)) return list_of(*list);
  if (const auto* list = std::get_if<std::vector<float>>(&attribute.value)) return list_of(*list);
  if (const auto* text = std::get_if<std::string>(&attribute.value)) {
    return Tensor::Strings({}, {*text});
  }
  if (const auto* list = std::get_if<std::vector<std::string>>(&attribute.value)) {
    return Tensor::Strings({static_cast<int64_t>(list->size())}, *list);
  }
  return NodeError(node, "sparse values are not supported");
}

absl::Status InferConstant(ShapeContext& c) {
  PF_ASSIGN_OR_RETURN(const Tensor tensor, ConstantTensor(c.node()));
  c.SetOutput(0, tensor.dtype(), Shape::FromInts(tensor.dims()));
  if (tensor.rank() <= 1 && tensor.size() <= 1024 && IsInteger(tensor.dtype())) {
    PF_ASSIGN_OR_RETURN(const std::vector<int64_t> values, IntegerValues(tensor));
    c.SetOutputValue(0, {values.begin(), values.end()});
  }
  return absl::OkStatus();
}

absl::Status RunConstant(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const Tensor tensor, ConstantTensor(*args.node));
  if (tensor.byte_size() > 0) std::memcpy(args.output(0).data, tensor.data(), tensor.byte_size());
  return absl::OkStatus();
}

// --- ConstantOfShape ---

// The attribute "value", one element; a float 0 if absent.
absl::StatusOr<Tensor> FillValue(const Node& node) {
  const Attribute* attribute = node.attribute("value");
  if (attribute == nullptr) return Tensor::Scalar(0.0f);
  const auto* tensor = std::get_if<Tensor>(&attribute->value);
  if (tensor == nullptr || tensor->size() != 1) {
    return AttributeError(node, "value", "expected a tensor of one element");
  }
  return *tensor;
}

absl::Status InferConstantOfShape(ShapeContext& c) {
  PF_ASSIGN_OR_RETURN(const Tensor value, FillValue(c.node()));
  std::optional<std::vector<Dim>> dims = c.input_value(0);
  const Shape* shape = c.input_shape(0);
  if (!dims && shape != nullptr && shape->rank() == 1 && (*shape)[0].is_constant() &&
      *(*shape)[0].constant() <= 64) {
    dims = std::vector<Dim>(*(*shape)[0].constant());
  }
  if (!dims) {
    c.SetOutput(0, value.dtype(), std::nullopt);
    return absl::OkStatus();
  }
  for (Dim& dim : *dims) {
    if (dim.is_constant() && *dim.constant() < 0) return c.InputError(0, "has a negative dim");
    if (!dim.known()) dim = c.FreshDim();
  }
  const Shape result(*std::move(dims));
  const bool is_list = result.rank() == 1 && result[0].is_constant() && *result[0].constant() <= 64;
  if (is_list && IsInteger(value.dtype())) {
    PF_ASSIGN_OR_RETURN(const std::vector<int64_t> element, IntegerValues(value));
    c.SetOutputValue(0, std::vector<Dim>(*result[0].constant(), Dim(element[0])));
  }
  c.SetOutput(0, value.dtype(), result);
  return absl::OkStatus();
}

absl::Status RunConstantOfShape(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const Tensor value, FillValue(*args.node));
  const TensorArg& y = args.output(0);
  if (IsPacked(y.dtype)) {
    const int bits = BitWidth(y.dtype);
    const uint8_t code = GetPacked(static_cast<const uint8_t*>(value.data()), 0, bits);
    std::fill_n(y.as<uint8_t>(), PackedBytes(y.size(), bits), 0);
    for (int64_t i = 0; i < y.size(); ++i) SetPacked(y.as<uint8_t>(), i, bits, code);
    return absl::OkStatus();
  }
  CopyBox({{y.size()}, {0}, {1}}, ElementSize(y.dtype), value.data(), y.data);
  return absl::OkStatus();
}

// --- Range ---

// Nullopt if delta is 0 or a bound is not a number.
template <typename T>
std::optional<int64_t> RangeCount(T start, T limit, T delta) {
  if (delta == T(0) || start != start || limit != limit) return std::nullopt;
  if constexpr (std::is_integral_v<T>) {
    const bool forwards = delta > 0;
    if (forwards ? start >= limit : start <= limit) return 0;
    // Distances as unsigned: they may not fit in T.
    using U = std::make_unsigned_t<T>;
    const U distance = forwards ? U(limit) - U(start) : U(start) - U(limit);
    const U step = forwards ? U(delta) : U(0) - U(delta);
    return static_cast<int64_t>((distance - 1) / step) + 1;
  } else {
    const double count = std::ceil((static_cast<double>(limit) - static_cast<double>(start)) /
                                   static_cast<double>(delta));
    return count > 0 ? static_cast<int64_t>(std::min(count, 9e18)) : 0;
  }
}

template <typename T>
using RangeType = std::conditional_t<kIsSmallFloat<T>, float, T>;

// The same of inputs, each a T.
template <typename T>
std::optional<int64_t> RangeCountOf(const ShapeContext& c) {
  const auto read = [&](int i) {
    return static_cast<RangeType<T>>(c.input_tensor(i)->values<T>()[0]);
  };
  return RangeCount(read(0), read(1), read(2));
}

// Nullopt if the inputs are not known; an error if delta is 0.
absl::StatusOr<std::optional<int64_t>> CountOf(const ShapeContext& c) {
  std::optional<int64_t> count;
  for (int i = 0; i < 3; ++i) {
    if (c.input_tensor(i) == nullptr) return count;
    if (c.input_tensor(i)->size() != 1) return c.InputError(i, "expected one element");
  }
  PF_RETURN_IF_ERROR(DispatchType(c.input_type(0), [&]<typename T>() {
    if constexpr (!std::is_same_v<T, bool>) count = RangeCountOf<T>(c);
  }));
  if (!count) return c.InputError(2, "delta is 0 or a bound is not a number");
  return count;
}

absl::Status InferRange(ShapeContext& c) {
  PF_ASSIGN_OR_RETURN(const std::optional<int64_t> count, CountOf(c));
  if (count) {
    c.SetOutput(0, c.input_type(0), Shape({Dim(*count)}));
    return absl::OkStatus();
  }
  Dim size;
  const auto start = c.input_value(0);
  const auto limit = c.input_value(1);
  const auto delta = c.input_value(2);
  const bool counts_up = start && limit && delta && start->size() == 1 && limit->size() == 1 &&
                         delta->size() == 1 && delta->front() == Dim(1);
  // From 0 to a size, or from past to past + sequence; a difference that may be negative is not a
  // size.
  if (counts_up) {
    const Dim distance = limit->front() - start->front();
    const bool is_size = distance.known() && distance.offset() >= 0 &&
                         std::all_of(distance.terms().begin(), distance.terms().end(),
                                     [](const Dim::Term& term) { return term.second > 0; });
    if (is_size) size = distance;
  }
  c.SetOutput(0, c.input_type(0), Shape({size.known() ? size : c.FreshDim()}));
  return absl::OkStatus();
}

absl::Status RunRange(KernelArgs& args) {
  const TensorArg& y = args.output(0);
  return DispatchType(y.dtype, [&]<typename T>() {
    if constexpr (!std::is_same_v<T, bool>) {
      using C = RangeType<T>;
      const C start = static_cast<C>(*args.input(0).as<T>());
      const C delta = static_cast<C>(*args.input(2).as<T>());
      for (int64_t i = 0, size = y.size(); i < size; ++i) {
        y.as<T>()[i] = static_cast<T>(static_cast<C>(start + static_cast<C>(i) * delta));
      }
    }
  });
}

}  // namespace

OpDef ConstantDef() {
  return OpDef("", "Constant", 1)
      .Doc("The tensor in the attribute; exactly one of the attributes is given.")
      .Output("output", "T")
      .Attr("value", std::monostate(), "a tensor")
      .Attr("value_int", std::monostate(), "an int64 scalar")
      .Attr("value_ints", std::monostate(), "an int64 list")
      .Attr("value_float", std::monostate(), "a float scalar")
      .Attr("value_floats", std::monostate(), "a float list")
      .Attr("value_string", std::monostate(), "a string scalar")
      .Attr("value_strings", std::monostate(), "a list of strings")
      .Attr("sparse_value", std::monostate(), "not supported")
      .Types("T",
             [] {
               std::vector<DataType> types = AllTypes();
               types.push_back(DataType::kString);
               return types;
             }())
      .InferShapes(InferConstant)
      .AddKernel({.name = "reference", .run = RunConstant});
}

OpDef ConstantOfShapeDef() {
  return OpDef("", "ConstantOfShape", 9)
      .Doc(
          "A tensor of the given shape, every element of which is the one in `value` (a float 0 by "
          "default).")
      .Input("input", "int64", "[rank]", PortKind::kRequired, PortRole::kMetadata)
      .Output("output", "T")
      .Attr("value", std::monostate(), "a tensor of one element")
      .Types("T", AllTypes())
      .InferShapes(InferConstantOfShape)
      .AddKernel({.name = "reference", .run = RunConstantOfShape});
}

OpDef RangeDef() {
  return OpDef("", "Range", 11)
      .Doc("start, start + delta, ... before limit.")
      .Input("start", "T", "[]")
      .Input("limit", "T", "[]")
      .Input("delta", "T", "[]")
      .Output("output", "T", "[n]")
      .Types("T", {DataType::kFloat, DataType::kDouble, DataType::kInt16, DataType::kInt32,
                   DataType::kInt64, DataType::kFloat16, DataType::kBfloat16})
      .InferShapes(InferRange)
      .AddKernel({.name = "reference", .run = RunRange});
}

}  // namespace pagefuse::onnx_ops
