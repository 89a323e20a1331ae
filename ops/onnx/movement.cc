// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/onnx/movement.h"

#include <algorithm>
#include <cstring>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/schema/shape_checks.h"

namespace pagefuse::onnx_ops {
namespace {

std::vector<int64_t> ElementsOf(const Attribute& attribute) {
  if (const auto* one = std::get_if<int64_t>(&attribute.value)) return {*one};
  const auto* list = std::get_if<std::vector<int64_t>>(&attribute.value);
  return list ? *list : std::vector<int64_t>();
}

}  // namespace

std::vector<DataType> AllTypes() {
  std::vector<DataType> types;
  for (int32_t code = 1; code <= kLastDataType; ++code) {
    const auto type = static_cast<DataType>(code);
    if (type != DataType::kString) types.push_back(type);
  }
  return types;
}

std::vector<DataType> WideTypes() {
  std::vector<DataType> types = AllTypes();
  std::erase_if(types, [](DataType type) { return IsFloat8(type) || IsPacked(type); });
  return types;
}

std::vector<DataType> NumberTypes() {
  std::vector<DataType> types = WideTypes();
  std::erase_if(types, [](DataType type) { return !IsInteger(type) && !IsFloatingPoint(type); });
  return types;
}

std::vector<DataType> IndexTypes() { return {DataType::kInt32, DataType::kInt64}; }

absl::StatusOr<int> ResolveAxis(const ShapeContext& context, int64_t axis, int rank) {
  if (axis < -rank || axis >= rank) {
    return context.Error(StrCat("axis ", axis, " is out of range for rank ", rank));
  }
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

absl::StatusOr<std::vector<int>> ResolveAxes(const ShapeContext& context,
                                             const std::vector<int64_t>& axes, int rank) {
  std::vector<int> result;
  for (int64_t axis : axes) {
    PF_ASSIGN_OR_RETURN(const int resolved, ResolveAxis(context, axis, rank));
    if (std::find(result.begin(), result.end(), resolved) != result.end()) {
      return context.Error(StrCat("axis ", axis, " is named twice"));
    }
    result.push_back(resolved);
  }
  return result;
}

absl::StatusOr<int> AxisAttribute(const ShapeContext& context, int rank, int64_t default_value) {
  PF_ASSIGN_OR_RETURN(const int64_t axis, context.node().IntAttribute("axis", default_value));
  return ResolveAxis(context, axis, rank);
}

absl::StatusOr<int> AxisOf(const Node& node, const std::vector<int64_t>& dims,
                           int64_t default_value) {
  PF_ASSIGN_OR_RETURN(const int64_t axis, node.IntAttribute("axis", default_value));
  return KernelAxis(axis, dims.size());
}

absl::Status InferLikeInput(ShapeContext& context) {
  const Shape* shape = context.input_shape(0);
  context.SetOutput(0, context.input_type(0), CopyOf(shape));
  return absl::OkStatus();
}

Dim Product(const Shape& shape, int begin, int end) {
  Dim product(1);
  for (int i = begin; i < end; ++i) product = product * shape[i];
  return product;
}

absl::StatusOr<bool> IsGiven(const ShapeContext& context, const MovedList& list) {
  const Attribute* attribute = context.node().attribute(list.name);
  if (attribute == nullptr) return context.has_input(list.input);
  const bool is_list = std::holds_alternative<int64_t>(attribute->value) ||
                       std::holds_alternative<std::vector<int64_t>>(attribute->value);
  if (!is_list) return context.AttributeError(list.name, "expected integers");
  return true;
}

std::optional<std::vector<Dim>> DimsOf(const ShapeContext& context, const MovedList& list) {
  const Attribute* attribute = context.node().attribute(list.name);
  if (attribute == nullptr) return context.input_value(list.input);
  const std::vector<int64_t> elements = ElementsOf(*attribute);
  return std::vector<Dim>(elements.begin(), elements.end());
}

std::optional<std::vector<int64_t>> IntsOf(const ShapeContext& context, const MovedList& list) {
  const Attribute* attribute = context.node().attribute(list.name);
  if (attribute == nullptr) return context.input_ints(list.input);
  return ElementsOf(*attribute);
}

std::vector<int64_t> IndexValues(const KernelArgs& args, const MovedList& list) {
  const Attribute* attribute = args.node->attribute(list.name);
  if (attribute != nullptr) return ElementsOf(*attribute);
  const TensorArg& input = args.input(list.input);
  return input.present() ? IndexValues(input) : std::vector<int64_t>();
}

std::vector<int64_t> IndexValues(const TensorArg& arg) {
  const int64_t size = arg.size();
  if (arg.dtype == DataType::kInt32) {
    return std::vector<int64_t>(arg.as<int32_t>(), arg.as<int32_t>() + size);
  }
  return std::vector<int64_t>(arg.as<int64_t>(), arg.as<int64_t>() + size);
}

int64_t Product(const std::vector<int64_t>& dims, size_t begin, size_t end) {
  int64_t product = 1;
  for (size_t i = begin; i < end; ++i) product *= dims[i];
  return product;
}

std::vector<int64_t> RowMajorStrides(const std::vector<int64_t>& dims) {
  std::vector<int64_t> strides(dims.size());
  int64_t stride = 1;
  for (size_t i = dims.size(); i-- > 0; stride *= dims[i]) strides[i] = stride;
  return strides;
}

absl::Status ValueError(const KernelArgs& args, int input, std::string_view name,
                        std::string_view what) {
  return NodeError(*args.node, StrCat("input ", input, " \"", name, "\": ", what));
}

absl::Status CheckIndexRange(const KernelArgs& args, int input, std::string_view name, int64_t low,
                             int64_t high) {
  const TensorArg& arg = args.input(input);
  const auto check = [&](const auto* values) {
    for (int64_t i = 0, size = arg.size(); i < size; ++i) {
      if (values[i] >= low && values[i] < high) continue;
      return ValueError(args, input, name,
                        StrCat("index ", values[i], " is out of range [", low, ", ", high, ")"));
    }
    return absl::OkStatus();
  };
  return arg.dtype == DataType::kInt32 ? check(arg.as<int32_t>()) : check(arg.as<int64_t>());
}

absl::Status CheckElementIndices(const ShapeContext& c) {
  const Shape* x = c.input_shape(0);
  const Shape* indices = c.input_shape(1);
  if (x == nullptr) return absl::OkStatus();
  PF_ASSIGN_OR_RETURN(const int axis, AxisAttribute(c, x->rank(), 0));
  if (indices == nullptr) return absl::OkStatus();
  if (x->rank() != indices->rank()) {
    return c.InputError(1,
                        StrCat("expected rank ", x->rank(), ", got shape ", indices->ToString()));
  }
  for (int i = 0; i < x->rank(); ++i) {
    const std::optional<int64_t> have = (*x)[i].constant();
    const std::optional<int64_t> want = (*indices)[i].constant();
    if (i == axis || !have || !want || *want <= *have) continue;
    return c.InputError(
        1, StrCat("shape ", indices->ToString(), " reaches over ", x->ToString(), " at axis ", i));
  }
  return absl::OkStatus();
}

absl::Status CheckAxisIndices(const KernelArgs& args) {
  const TensorArg& x = args.input(0);
  PF_ASSIGN_OR_RETURN(const int axis, AxisOf(*args.node, x.dims, 0));
  const int64_t size = x.dims[axis];
  return CheckIndexRange(args, 1, "indices", -size, size);
}

absl::Status CheckIndexTuples(const KernelArgs& args, int64_t batch_dims) {
  const TensorArg& x = args.input(0);
  const TensorArg& indices = args.input(1);
  const int64_t depth = indices.dims.back();
  for (int64_t k = 0, size = indices.size(); k < size; ++k) {
    const int64_t dim = x.dims[batch_dims + k % depth];
    const int64_t index = indices.as<int64_t>()[k];
    if (index >= -dim && index < dim) continue;
    return ValueError(args, 1, "indices",
                      StrCat("index ", index, " is out of range [", -dim, ", ", dim, ")"));
  }
  return absl::OkStatus();
}

absl::Status CopyBytes(KernelArgs& args) {
  const TensorArg& x = args.input(0);
  const TensorArg& y = args.output(0);
  const int64_t bytes = PackedBytes(x.size(), BitWidth(x.dtype));
  if (bytes > 0 && y.data != x.data) std::memmove(y.data, x.data, bytes);
  return absl::OkStatus();
}

}  // namespace pagefuse::onnx_ops
