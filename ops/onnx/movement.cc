#include "pagefuse/ops/onnx/movement.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"

#include "pagefuse/base/packed_types.h"
#include "pagefuse/base/status_macros.h"

namespace pagefuse::onnx_ops {

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
    return context.Error(absl::StrCat("axis ", axis, " is out of range for rank ", rank));
  }
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

absl::StatusOr<std::vector<int>> ResolveAxes(const ShapeContext& context,
                                             const std::vector<int64_t>& axes, int rank) {
  std::vector<int> result;
  for (int64_t axis : axes) {
    PF_ASSIGN_OR_RETURN(const int resolved, ResolveAxis(context, axis, rank));
    if (std::find(result.begin(), result.end(), resolved) != result.end()) {
      return context.Error(absl::StrCat("axis ", axis, " is named twice"));
    }
    result.push_back(resolved);
  }
  return result;
}

absl::StatusOr<int> AxisAttribute(const ShapeContext& context, int rank, int64_t default_value) {
  PF_ASSIGN_OR_RETURN(const int64_t axis, context.node().IntAttribute("axis", default_value));
  return ResolveAxis(context, axis, rank);
}

absl::Status InferLikeInput(ShapeContext& context) {
  const Shape* shape = context.input_shape(0);
  context.SetOutput(0, context.input_type(0), shape ? std::optional<Shape>(*shape) : std::nullopt);
  return absl::OkStatus();
}

Dim Product(const Shape& shape, int begin, int end) {
  Dim product(1);
  for (int i = begin; i < end; ++i) product = product * shape[i];
  return product;
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
  return absl::InvalidArgumentError(absl::StrCat(args.node->Description(), ": input ", input, " \"",
                                                 std::string(name), "\": ", std::string(what)));
}

absl::Status CheckIndexRange(const KernelArgs& args, int input, std::string_view name, int64_t low,
                             int64_t high) {
  const TensorArg& arg = args.input(input);
  const auto check = [&](const auto* values) {
    for (int64_t i = 0, size = arg.size(); i < size; ++i) {
      if (values[i] >= low && values[i] < high) continue;
      return ValueError(
          args, input, name,
          absl::StrCat("index ", values[i], " is out of range [", low, ", ", high, ")"));
    }
    return absl::OkStatus();
  };
  return arg.dtype == DataType::kInt32 ? check(arg.as<int32_t>()) : check(arg.as<int64_t>());
}

absl::Status CopyBytes(KernelArgs& args) {
  const TensorArg& x = args.input(0);
  const TensorArg& y = args.output(0);
  const int64_t bytes = PackedBytes(x.size(), BitWidth(x.dtype));
  if (bytes > 0 && y.data != x.data) std::memmove(y.data, x.data, bytes);
  return absl::OkStatus();
}

}  // namespace pagefuse::onnx_ops
