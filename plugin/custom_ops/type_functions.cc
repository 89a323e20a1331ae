// SPDX-License-Identifier: Apache-2.0
// Element types and shapes.
#include <algorithm>

#include "pagefuse/ir/tensor/shape.h"
#include "pagefuse/plugin/custom_ops/answers.h"
#include "pagefuse/plugin/custom_ops/table.h"

namespace pagefuse::ort {
namespace {

Status* Create(TensorTypeAndShapeInfo** info) {
  *info = new TensorTypeAndShapeInfo;
  return nullptr;
}

Status* SetType(TensorTypeAndShapeInfo* info, ElementType type) {
  info->type = type;
  return nullptr;
}

Status* SetDims(TensorTypeAndShapeInfo* info, const int64_t* dims, size_t rank) {
  info->dims.assign(dims, dims + rank);
  info->symbols.resize(rank);
  return nullptr;
}

Status* SetSymbols(TensorTypeAndShapeInfo* info, const char** symbols, size_t rank) {
  info->symbols.clear();
  for (size_t i = 0; i < rank; ++i) {
    info->symbols.emplace_back(symbols[i] == nullptr ? "" : symbols[i]);
  }
  return nullptr;
}

Status* GetRank(const TensorTypeAndShapeInfo* info, size_t* rank) {
  *rank = info->dims.size();
  return nullptr;
}

Status* GetDims(const TensorTypeAndShapeInfo* info, int64_t* dims, size_t room) {
  std::copy_n(info->dims.begin(), std::min(room, info->dims.size()), dims);
  return nullptr;
}

Status* GetSymbols(const TensorTypeAndShapeInfo* info, const char** symbols, size_t room) {
  for (size_t i = 0; i < room; ++i) {
    symbols[i] = i < info->symbols.size() ? info->symbols[i].c_str() : "";
  }
  return nullptr;
}

// -1 where a dim is no number, as in ONNX Runtime.
Status* GetCount(const TensorTypeAndShapeInfo* info, size_t* count) {
  *count = static_cast<size_t>(ElementCount(info->dims).value_or(-1));
  return nullptr;
}

Status* AsTensor(const TypeInfo* info, const TensorTypeAndShapeInfo** tensor) {
  *tensor = &info->tensor;
  return nullptr;
}

Status* KindOf(const TypeInfo* /*info*/, ValueType* kind) {
  *kind = ValueType::kTensor;
  return nullptr;
}

}  // namespace

void FillTypes(const TableFiller& table) {
  table.Set(kCreateTensorTypeAndShapeInfo, Create);
  table.Set(kSetTensorElementType, SetType);
  table.Set(kSetDimensions, SetDims);
  table.Set(kSetSymbolicDimensions, SetSymbols);
  table.Set(kGetTensorElementType,
            GetField<TensorTypeAndShapeInfo, ElementType, &TensorTypeAndShapeInfo::type>);
  table.Set(kGetDimensionsCount, GetRank);
  table.Set(kGetDimensions, GetDims);
  table.Set(kGetSymbolicDimensions, GetSymbols);
  table.Set(kGetTensorShapeElementCount, GetCount);
  table.Set(kReleaseTensorTypeAndShapeInfo, Release<TensorTypeAndShapeInfo>);
  table.Set(kCastTypeInfoToTensorInfo, AsTensor);
  table.Set(kGetOnnxTypeFromTypeInfo, KindOf);
  table.Set(kReleaseTypeInfo, Release<TypeInfo>);
}

}  // namespace pagefuse::ort
