// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/onnx/elementwise.h"

#include <cstddef>
#include <optional>

#include "pagefuse/base/parallel.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/kernels/numeric/convert.h"
#include "pagefuse/ops/onnx/broadcast.h"
#include "pagefuse/ops/onnx/element.h"
#include "pagefuse/ops/schema/shape_checks.h"

namespace pagefuse::onnx_ops {

absl::Status InferSameShape(ShapeContext& context, DataType dtype) {
  const Shape* shape = context.input_shape(0);
  context.SetOutput(0, dtype == DataType::kUndefined ? context.input_type(0) : dtype,
                    CopyOf(shape));
  return absl::OkStatus();
}

absl::Status InferBroadcast(ShapeContext& context, DataType dtype) {
  std::optional<Shape> result = Shape();
  for (int i = 0; i < context.num_inputs() && result; ++i) {
    const Shape* shape = context.input_shape(i);
    if (shape == nullptr) {
      result = std::nullopt;
      break;
    }
    PF_ASSIGN_OR_RETURN(result, BroadcastShapes(context, *result, *shape));
  }
  context.SetOutput(0, dtype == DataType::kUndefined ? context.input_type(0) : dtype, result);
  return absl::OkStatus();
}

absl::Status NoKernelForType(DataType dtype) {
  return absl::UnimplementedError(StrCat("no kernel for type ", DataTypeName(dtype)));
}

void* ElementAt(const TensorArg& tensor, int64_t element) {
  return tensor.as<std::byte>() + element * BitWidth(tensor.dtype) / 8;
}

absl::StatusOr<std::vector<float>> DecodedFloats(const TensorArg& tensor) {
  std::vector<float> values;
  if (!tensor.present()) return values;
  values.resize(static_cast<size_t>(tensor.size()));
  PF_RETURN_IF_ERROR(DecodeToFloat(tensor.dtype, tensor.data, tensor.size(), values.data()));
  return values;
}

absl::StatusOr<std::vector<double>> DecodedDoubles(const TensorArg& tensor) {
  std::vector<double> values;
  if (!tensor.present()) return values;
  values.resize(static_cast<size_t>(tensor.size()));
  PF_RETURN_IF_ERROR(DecodeToDouble(tensor.dtype, tensor.data, tensor.size(), values.data()));
  return values;
}

absl::Status EncodeDoubles(const std::vector<double>& values, const TensorArg& tensor,
                           int64_t start) {
  return Dispatch(Floats(), tensor.dtype, [&]<typename T>() {
    T* to = tensor.as<T>() + start;
    for (double value : values) *to++ = Store<T>(static_cast<Compute<T>>(value));
  });
}

absl::Status RunBinaryRows(const KernelArgs& args, BinaryRowFn row) {
  const TensorArg& a = args.input(0);
  const TensorArg& b = args.input(1);
  const TensorArg& y = args.output(0);
  if (row == nullptr) return NoKernelForType(a.dtype);
  const int64_t size = y.size();
  const auto is_row = [size](const TensorArg& x) { return x.size() == size || x.size() == 1; };
  if (is_row(a) && is_row(b)) {
    // Operands that are whole or one element make one row, which needs no plan.
    const int64_t a_stride = a.size() == size ? 1 : 0;
    const int64_t b_stride = b.size() == size ? 1 : 0;
    ParallelFor(size, 4, [&](int64_t begin, int64_t end) {
      row({ElementAt(a, begin * a_stride), a_stride, ElementAt(b, begin * b_stride), b_stride},
          ElementAt(y, begin), end - begin);
    });
    return absl::OkStatus();
  }
  const BroadcastPlan plan(y.dims, {a.dims, b.dims});
  ParallelFor(plan.size(), 4, [&](int64_t begin, int64_t end) {
    plan.ForEachRow(begin, end, [&](int64_t position, int64_t n, const int64_t* offsets) {
      row({ElementAt(a, offsets[0]), plan.row_stride(0), ElementAt(b, offsets[1]),
           plan.row_stride(1)},
          ElementAt(y, position), n);
    });
  });
  return absl::OkStatus();
}

}  // namespace pagefuse::onnx_ops
