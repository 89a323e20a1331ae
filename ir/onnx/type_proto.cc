// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ir/onnx/type_proto.h"

#include <utility>

#include "absl/status/statusor.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/onnx/onnx_proto.h"

namespace pagefuse {
namespace {

struct TensorType {
  DataType dtype = DataType::kUndefined;
  std::optional<Shape> shape;
  bool operator==(const TensorType&) const = default;
};

absl::StatusOr<TensorType> ReadTensorType(const onnx::TypeProto::Tensor& proto) {
  TensorType type;
  if (proto.elem_type() != 0) {
    const std::optional<DataType> dtype = DataTypeFromCode(proto.elem_type());
    if (!dtype) {
      return absl::InvalidArgumentError(
          StrCat("expected a known element type, got code ", proto.elem_type()));
    }
    type.dtype = *dtype;
  }
  if (!proto.has_shape()) return type;
  type.shape.emplace();
  for (const onnx::TensorShapeProto::Dimension& dim : proto.shape().dim()) {
    // Some writers say -1 for an unknown dim.
    const bool number = dim.has_dim_value() && dim.dim_value() >= 0;
    type.shape->dims().push_back(number ? Dim(dim.dim_value()) : Dim::Parse(dim.dim_param()));
  }
  return type;
}

void WriteTensorType(const TensorType& type, onnx::TypeProto::Tensor* proto) {
  if (type.dtype != DataType::kUndefined) proto->set_elem_type(static_cast<int32_t>(type.dtype));
  if (!type.shape) return;
  onnx::TensorShapeProto* shape = proto->mutable_shape();
  for (const Dim& dim : type.shape->dims()) {
    onnx::TensorShapeProto::Dimension* entry = shape->add_dim();
    if (dim.is_constant() && *dim.constant() >= 0) {
      entry->set_dim_value(*dim.constant());
    } else if (dim.known()) {
      entry->set_dim_param(dim.ToString());
    }
  }
}

}  // namespace

absl::Status ImportType(const onnx::TypeProto& proto, Value& value) {
  value.type_proto.clear();
  value.spelled_type.clear();
  value.set_dtype(DataType::kUndefined);
  value.set_shape(std::nullopt);
  if (!proto.has_tensor_type()) {
    value.type_proto = proto.SerializePartialAsString();
    return absl::OkStatus();
  }
  PF_ASSIGN_OR_RETURN(TensorType type, ReadTensorType(proto.tensor_type()));
  onnx::TypeProto written;
  WriteTensorType(type, written.mutable_tensor_type());
  std::string spelled = proto.SerializePartialAsString();
  if (spelled != written.SerializePartialAsString()) value.spelled_type = std::move(spelled);
  value.set_dtype(type.dtype);
  value.set_shape(std::move(type.shape));
  return absl::OkStatus();
}

bool ExportType(const Value& value, onnx::TypeProto* proto) {
  const TensorType type = {value.dtype(), value.shape()};
  const bool known = type.dtype != DataType::kUndefined || type.shape;
  if (!known && !value.type_proto.empty()) {
    return ParseProto(value.type_proto, kKeptMessageDepth, *proto).ok();
  }
  if (!value.spelled_type.empty() &&
      ParseProto(value.spelled_type, kKeptMessageDepth, *proto).ok()) {
    const absl::StatusOr<TensorType> spelled = ReadTensorType(proto->tensor_type());
    if (spelled.ok() && *spelled == type) return true;
  }
  proto->Clear();
  if (known) WriteTensorType(type, proto->mutable_tensor_type());
  return known;
}

}  // namespace pagefuse
