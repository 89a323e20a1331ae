#include "pagefuse/ops/microsoft/tensor_values.h"

#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/str_cat.h"
#include "pagefuse/kernels/numeric/convert.h"

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

bool Differ(const Dim& a, const Dim& b) {
  return a.constant() && b.constant() && *a.constant() != *b.constant();
}

absl::Status ExpectShape(const ShapeContext& context, int i, const Shape& expected) {
  const Shape* shape = context.has_input(i) ? context.input_shape(i) : nullptr;
  if (shape == nullptr) return absl::OkStatus();
  bool fits = shape->rank() == expected.rank();
  for (int d = 0; fits && d < shape->rank(); ++d) fits = !Differ((*shape)[d], expected[d]);
  if (fits) return absl::OkStatus();
  return context.InputError(
      i, StrCat("expected shape ", expected.ToString(), ", got ", shape->ToString()));
}

int64_t IntAt(const TensorArg& tensor, int64_t i) {
  return tensor.dtype == DataType::kInt32 ? tensor.as<int32_t>()[i] : tensor.as<int64_t>()[i];
}

absl::Status ValueError(const KernelArgs& args, std::string_view where, std::string_view what) {
  return absl::InvalidArgumentError(StrCat(args.node->Description(), ": ", where, ": ", what));
}

}  // namespace pagefuse::microsoft_ops
