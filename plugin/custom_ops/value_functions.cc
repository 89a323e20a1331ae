// SPDX-License-Identifier: Apache-2.0
// Tensors: those of a call, and those that a library makes for itself.
#include <utility>
#include <vector>

#include "pagefuse/base/data_type.h"
#include "pagefuse/ir/tensor/tensor.h"
#include "pagefuse/plugin/custom_ops/answers.h"
#include "pagefuse/plugin/custom_ops/table.h"

namespace pagefuse::ort {
namespace {

Status* NoValue() { return Refuse(ErrorCode::kInvalidArgument, "there is no value"); }

Status* NoStrings() {
  return Refuse(ErrorCode::kNotImplemented, "tensors of strings are not computed");
}

Status* IsTensor(const Value* value, int* yes) {
  if (value == nullptr) return NoValue();
  *yes = 1;
  return nullptr;
}

Status* HasValue(const Value* value, int* yes) {
  *yes = value == nullptr ? 0 : 1;
  return nullptr;
}

Status* KindOf(const Value* value, ValueType* kind) {
  if (value == nullptr) return NoValue();
  *kind = ValueType::kTensor;
  return nullptr;
}

// Of a value that may be written to, and of another.
template <typename OfValue, typename Data>
Status* GetData(OfValue* value, Data** data) {
  if (value == nullptr) return NoValue();
  *data = value->arg.data;
  return nullptr;
}

Status* SizeInBytes(const Value* value, size_t* size) {
  if (value == nullptr) return NoValue();
  *size = static_cast<size_t>(ByteSize(value->arg.dtype, value->arg.dims).value_or(0));
  return nullptr;
}

TensorTypeAndShapeInfo InfoOf(const Value& value) {
  return {static_cast<ElementType>(value.arg.dtype), value.arg.dims,
          std::vector<std::string>(value.arg.dims.size())};
}

Status* TypeAndShape(const Value* value, TensorTypeAndShapeInfo** info) {
  if (value == nullptr) return NoValue();
  *info = new TensorTypeAndShapeInfo(InfoOf(*value));
  return nullptr;
}

Status* TypeOf(const Value* value, TypeInfo** info) {
  if (value == nullptr) return NoValue();
  *info = new TypeInfo{InfoOf(*value)};
  return nullptr;
}

Status* Memory(const Value* value, const MemoryInfo** info) {
  if (value == nullptr) return NoValue();
  *info = value->memory;
  return nullptr;
}

Status* Fill(Value* /*value*/, const char* const* /*texts*/, size_t /*count*/) {
  return NoStrings();
}

Status* TextLength(const Value* /*value*/, size_t* /*length*/) { return NoStrings(); }

Status* Texts(const Value* /*value*/, void* /*texts*/, size_t /*room*/, size_t* /*offsets*/,
              size_t /*count*/) {
  return NoStrings();
}

// A type of tensors that have bytes, or what is wrong.
absl::StatusOr<DataType> NumericType(ElementType type) {
  const auto dtype = DataTypeFromCode(type);
  if (!dtype || *dtype == DataType::kString) {
    return absl::UnimplementedError("tensors of element type " + std::to_string(type) +
                                    " are not computed");
  }
  return *dtype;
}

absl::StatusOr<Tensor> Allocated(ElementType type, std::vector<int64_t> dims) {
  const absl::StatusOr<DataType> dtype = NumericType(type);
  if (!dtype.ok()) return dtype.status();
  return Tensor::Allocate(*dtype, std::move(dims));
}

// NOLINTNEXTLINE(readability-function-size): as the C API has it.
Status* Create(Allocator* /*allocator*/, const int64_t* dims, size_t rank, ElementType type,
               Value** value) {
  absl::StatusOr<Tensor> tensor = Allocated(type, {dims, dims + rank});
  if (!tensor.ok()) return ToAnswer(tensor.status());
  *value = new Value(Value::Of(*tensor));
  (*value)->owner = *std::move(tensor);
  return nullptr;
}

// NOLINTNEXTLINE(readability-function-size): as the C API has it.
Status* CreateOver(const MemoryInfo* memory, void* data, size_t size, const int64_t* dims,
                   size_t rank, ElementType type, Value** value) {
  const absl::StatusOr<DataType> dtype = NumericType(type);
  if (!dtype.ok()) return ToAnswer(dtype.status());
  TensorArg arg{*dtype, {dims, dims + rank}, data};
  const absl::StatusOr<int64_t> bytes = ByteSize(*dtype, arg.dims);
  if (!bytes.ok()) return ToAnswer(bytes.status());
  if (static_cast<size_t>(*bytes) > size) {
    return Refuse(ErrorCode::kInvalidArgument, "the memory for a tensor is too small");
  }
  *value = new Value{std::move(arg), {}, memory};
  return nullptr;
}

}  // namespace

Value Value::Of(const Tensor& tensor) {
  return {{tensor.dtype(), tensor.dims(), const_cast<void*>(tensor.data())}};
}

void FillValues(const TableFiller& table) {
  table.Set(kIsTensor, IsTensor);
  table.Set(kHasValue, HasValue);
  table.Set(kGetValueType, KindOf);
  table.Set(kGetTensorMutableData, GetData<Value, void>);
  table.Set(kGetTensorData, GetData<const Value, const void>);
  table.Set(kGetTensorSizeInBytes, SizeInBytes);
  table.Set(kGetTensorTypeAndShape, TypeAndShape);
  table.Set(kGetTypeInfo, TypeOf);
  table.Set(kGetTensorMemoryInfo, Memory);
  table.Set(kFillStringTensor, Fill);
  table.Set(kGetStringTensorDataLength, TextLength);
  table.Set(kGetStringTensorContent, Texts);
  table.Set(kCreateTensorAsOrtValue, Create);
  table.Set(kCreateTensorWithDataAsOrtValue, CreateOver);
  table.Set(kReleaseValue, Release<Value>);
}

}  // namespace pagefuse::ort
