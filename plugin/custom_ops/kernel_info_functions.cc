// SPDX-License-Identifier: Apache-2.0
// What a kernel asks of its node while it is made.
#include <string>
#include <utility>
#include <variant>

#include "pagefuse/plugin/custom_ops/answers.h"
#include "pagefuse/plugin/custom_ops/node_types.h"
#include "pagefuse/plugin/custom_ops/table.h"

namespace pagefuse::ort {
namespace {

// The value of an attribute, if the node has it and it is of that kind.
template <typename T>
const T* Find(const KernelInfo* info, const char* name) {
  const Attribute* attribute = info->node.attribute(name);
  return attribute == nullptr ? nullptr : std::get_if<T>(&attribute->value);
}

Status* NoAttribute(const KernelInfo* info, const char* name, const char* kind) {
  const char* what = info->node.attribute(name) == nullptr ? "is missing" : "is of another kind";
  return Refuse(ErrorCode::kFail,
                std::string("attribute \"") + name + "\" " + what + ", expected " + kind);
}

Status* GetFloat(const KernelInfo* info, const char* name, float* out) {
  const auto* value = Find<float>(info, name);
  if (value == nullptr) return NoAttribute(info, name, "a float");
  *out = *value;
  return nullptr;
}

Status* GetInt(const KernelInfo* info, const char* name, int64_t* out) {
  const auto* value = Find<int64_t>(info, name);
  if (value == nullptr) return NoAttribute(info, name, "an int");
  *out = *value;
  return nullptr;
}

Status* GetString(const KernelInfo* info, const char* name, char* out, size_t* size) {
  const auto* value = Find<std::string>(info, name);
  if (value == nullptr) return NoAttribute(info, name, "a string");
  return GiveText(*value, out, size);
}

Status* GetFloats(const KernelInfo* info, const char* name, float* out, size_t* size) {
  const auto* value = Find<std::vector<float>>(info, name);
  if (value == nullptr) return NoAttribute(info, name, "a list of floats");
  return GiveList(*value, out, size);
}

Status* GetInts(const KernelInfo* info, const char* name, int64_t* out, size_t* size) {
  const auto* value = Find<std::vector<int64_t>>(info, name);
  if (value == nullptr) return NoAttribute(info, name, "a list of ints");
  return GiveList(*value, out, size);
}

// The library owns the value, and may write to it.
Status* GetTensor(const KernelInfo* info, const char* name, Allocator* /*allocator*/, Value** out) {
  const auto* value = Find<Tensor>(info, name);
  if (value == nullptr) return NoAttribute(info, name, "a tensor");
  if (value->dtype() == DataType::kString) {
    return Refuse(ErrorCode::kNotImplemented, "tensors of strings are not computed");
  }
  absl::StatusOr<Tensor> copy = value->Clone();
  if (!copy.ok()) return ToAnswer(copy.status());
  *out = new Value(Value::Of(*copy));
  (*out)->owner = *std::move(copy);
  return nullptr;
}

Status* InputCount(const KernelInfo* info, size_t* count) {
  *count = info->node.inputs().size();
  return nullptr;
}

Status* OutputCount(const KernelInfo* info, size_t* count) {
  *count = info->node.outputs().size();
  return nullptr;
}

// The one of that number, null where it is omitted.
const pagefuse::Value* At(const std::vector<pagefuse::Value*>& values, size_t i) {
  return i < values.size() ? values[i] : nullptr;
}

Status* GiveName(const std::vector<pagefuse::Value*>& values, size_t i, char* out, size_t* size) {
  if (i >= values.size()) return Refuse(ErrorCode::kInvalidArgument, "there is no such port");
  return GiveText(values[i] == nullptr ? "" : values[i]->name(), out, size);
}

Status* InputName(const KernelInfo* info, size_t i, char* out, size_t* size) {
  return GiveName(info->node.inputs(), i, out, size);
}

Status* OutputName(const KernelInfo* info, size_t i, char* out, size_t* size) {
  return GiveName(info->node.outputs(), i, out, size);
}

Status* GiveType(const pagefuse::Value* value, TypeInfo** type) {
  if (value == nullptr) return Refuse(ErrorCode::kInvalidArgument, "the node omits this port");
  *type = new TypeInfo{InfoOf(value->dtype(), value->shape())};
  return nullptr;
}

Status* InputType(const KernelInfo* info, size_t i, TypeInfo** type) {
  return GiveType(At(info->node.inputs(), i), type);
}

Status* OutputType(const KernelInfo* info, size_t i, TypeInfo** type) {
  return GiveType(At(info->node.outputs(), i), type);
}

Status* NodeName(const KernelInfo* info, char* out, size_t* size) {
  return GiveText(info->node.name, out, size);
}

Status* ConstantInput(const KernelInfo* info, size_t i, int* is_constant, const Value** value) {
  const bool found = i < info->constants.size() && info->constants[i].has_value();
  *is_constant = found ? 1 : 0;
  *value = found ? &*info->constants[i] : nullptr;
  return nullptr;
}

Status* GetLogger(const KernelInfo* info, const Logger** logger) {
  *logger = &info->logger;
  return nullptr;
}

Status* GetAllocator(const KernelInfo* /*info*/, int /*memory*/, Allocator** allocator) {
  *allocator = &CpuAllocator();
  return nullptr;
}

}  // namespace

void FillKernelInfo(const TableFiller& table) {
  table.Set(kKernelInfoGetAttributeFloat, GetFloat);
  table.Set(kKernelInfoGetAttributeInt64, GetInt);
  table.Set(kKernelInfoGetAttributeString, GetString);
  table.Set(kKernelInfoGetAttributeFloats, GetFloats);
  table.Set(kKernelInfoGetAttributeInt64s, GetInts);
  table.Set(kKernelInfoGetAttributeTensor, GetTensor);
  table.Set(kKernelInfoGetInputCount, InputCount);
  table.Set(kKernelInfoGetOutputCount, OutputCount);
  table.Set(kKernelInfoGetInputName, InputName);
  table.Set(kKernelInfoGetOutputName, OutputName);
  table.Set(kKernelInfoGetInputTypeInfo, InputType);
  table.Set(kKernelInfoGetOutputTypeInfo, OutputType);
  table.Set(kKernelInfoGetNodeName, NodeName);
  table.Set(kKernelInfoGetConstantInput, ConstantInput);
  table.Set(kKernelInfoGetLogger, GetLogger);
  table.Set(kKernelInfoGetAllocator, GetAllocator);
}

}  // namespace pagefuse::ort
