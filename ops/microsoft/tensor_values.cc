// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/microsoft/tensor_values.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/kernels/numeric/convert.h"

namespace pagefuse::microsoft_ops {

absl::StatusOr<FloatValues> FloatValues::Of(const TensorArg& tensor) {
  FloatValues values;
  if (!tensor.present()) return values;
  values.present_ = true;
  values.size_ = tensor.size();
  if (tensor.dtype == DataType::kFloat) {
    values.borrowed_ = tensor.as<float>();
    return values;
  }
  values.own_.resize(static_cast<size_t>(values.size_));
  PF_RETURN_IF_ERROR(DecodeToFloat(tensor.dtype, tensor.data, values.size_, values.own_.data()));
  return values;
}

float* FloatsOf(const KernelArgs& args, const TensorArg& output, int slot) {
  if (output.dtype == DataType::kFloat) return output.as<float>();
  const auto bytes = static_cast<size_t>(output.size()) * sizeof(float);
  return static_cast<float*>(args.scratch->Get(bytes, slot));
}

absl::Status StoreFloats(const float* values, const TensorArg& output) {
  if (output.dtype == DataType::kFloat) return absl::OkStatus();
  return EncodeFromFloat(output.dtype, values, output.size(), output.data);
}

int64_t IntAt(const TensorArg& tensor, int64_t i) {
  return tensor.dtype == DataType::kInt32 ? tensor.as<int32_t>()[i] : tensor.as<int64_t>()[i];
}

absl::Status ValueError(const KernelArgs& args, std::string_view where, std::string_view what) {
  return absl::InvalidArgumentError(StrCat(args.node->Description(), ": ", where, ": ", what));
}

}  // namespace pagefuse::microsoft_ops
