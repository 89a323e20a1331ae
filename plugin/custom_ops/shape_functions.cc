// SPDX-License-Identifier: Apache-2.0
// What a function for shapes is told, and what it says.
#include <cstring>
#include <string>
#include <variant>
#include <vector>

#include "pagefuse/plugin/custom_ops/answers.h"
#include "pagefuse/plugin/custom_ops/table.h"

namespace pagefuse::ort {
namespace {

Status* InputCount(const ShapeInferContext* context, size_t* count) {
  *count = context->inputs.size();
  return nullptr;
}

// Stays the context's.
Status* InputType(const ShapeInferContext* context, size_t i, TensorTypeAndShapeInfo** info) {
  if (i >= context->inputs.size()) {
    return Refuse(ErrorCode::kInvalidArgument, "there is no input " + std::to_string(i));
  }
  *info = const_cast<TensorTypeAndShapeInfo*>(&context->inputs[i]);
  return nullptr;
}

Status* GetAttribute(const ShapeInferContext* context, const char* name, const OpAttr** out) {
  const Attribute* attribute = context->node.attribute(name);
  if (attribute == nullptr) {
    return Refuse(ErrorCode::kInvalidArgument,
                  std::string("attribute \"") + name + "\" is missing");
  }
  auto& attributes = const_cast<ShapeInferContext*>(context)->attributes;
  *out = &attributes.emplace_back(OpAttr{*attribute});
  return nullptr;
}

Status* SetOutput(const ShapeInferContext* context, size_t i, const TensorTypeAndShapeInfo* info) {
  if (info == nullptr || info->symbols.size() != info->dims.size()) {
    return Refuse(ErrorCode::kInvalidArgument,
                  "a shape has a name for each of its dims, or an empty one");
  }
  auto& outputs = const_cast<ShapeInferContext*>(context)->outputs;
  if (i < outputs.size()) outputs[i] = *info;
  return nullptr;
}

// Bytes for memory of `room` bytes; `needed` is how many there are.
Status* GiveBytes(const void* bytes, size_t count, void* data, size_t room, size_t* needed) {
  *needed = count;
  if (room < count) {
    return Refuse(ErrorCode::kInvalidArgument, "the memory for an attribute is too small");
  }
  if (count > 0) std::memcpy(data, bytes, count);
  return nullptr;
}

template <typename T>
Status* GiveAll(const std::vector<T>& list, void* data, size_t room, size_t* needed) {
  return GiveBytes(list.data(), list.size() * sizeof(T), data, room, needed);
}

// Texts one after the other, each with the zero at its end.
Status* GiveTexts(const std::vector<std::string>& texts, void* data, size_t room, size_t* needed) {
  std::string all;
  for (const std::string& text : texts) all.append(text.c_str(), text.size() + 1);
  return GiveBytes(all.data(), all.size(), data, room, needed);
}

Status* ReadAttribute(const OpAttr* attribute, OpAttrType type, void* data, size_t room,
                      size_t* needed) {
  *needed = 0;
  if (attribute == nullptr) return Refuse(ErrorCode::kInvalidArgument, "there is no attribute");
  const auto& value = attribute->attribute.value;
  switch (type) {
    case OpAttrType::kInt:
      if (const auto* x = std::get_if<int64_t>(&value)) {
        return GiveBytes(x, sizeof(*x), data, room, needed);
      }
      break;
    case OpAttrType::kFloat:
      if (const auto* x = std::get_if<float>(&value)) {
        return GiveBytes(x, sizeof(*x), data, room, needed);
      }
      break;
    case OpAttrType::kString:
      if (const auto* x = std::get_if<std::string>(&value)) {
        return GiveBytes(x->c_str(), x->size() + 1, data, room, needed);
      }
      break;
    case OpAttrType::kInts:
      if (const auto* x = std::get_if<std::vector<int64_t>>(&value)) {
        return GiveAll(*x, data, room, needed);
      }
      break;
    case OpAttrType::kFloats:
      if (const auto* x = std::get_if<std::vector<float>>(&value)) {
        return GiveAll(*x, data, room, needed);
      }
      break;
    case OpAttrType::kStrings:
      if (const auto* x = std::get_if<std::vector<std::string>>(&value)) {
        return GiveTexts(*x, data, room, needed);
      }
      break;
  }
  return Refuse(ErrorCode::kInvalidArgument, "an attribute is of another kind than asked for");
}

}  // namespace

void FillShapeInference(const TableFiller& table) {
  table.Set(kShapeInferContextGetInputCount, InputCount);
  table.Set(kShapeInferContextGetInputTypeShape, InputType);
  table.Set(kShapeInferContextGetAttribute, GetAttribute);
  table.Set(kShapeInferContextSetOutputTypeShape, SetOutput);
  table.Set(kReadOpAttr, ReadAttribute);
}

}  // namespace pagefuse::ort
