// SPDX-License-Identifier: Apache-2.0
#include "plugin/ort/kernel_info.h"

#include <optional>
#include <string>

#include "plugin/ort/ort_status.h"

namespace pagefuse::ort {
namespace {

// The host answers a question that has no answer by an error.
bool IsAnswered(Api* api, Status* status) {
  if (status == nullptr) return true;
  kReleaseStatus(api, status);
  return false;
}

// A text of the host's: how long it is, with the zero at its end, then itself.
template <typename Ask>
std::optional<std::string> AskText(Api* api, const Ask& ask) {
  size_t size = 0;
  if (!IsAnswered(api, ask(nullptr, &size)) || size == 0) return std::nullopt;
  std::string text(size, '\0');
  if (!IsAnswered(api, ask(text.data(), &size))) return std::nullopt;
  text.resize(size - 1);
  return text;
}

template <typename T, typename Ask>
std::optional<std::vector<T>> AskList(Api* api, const Ask& ask) {
  size_t size = 0;
  if (!IsAnswered(api, ask(nullptr, &size))) return std::nullopt;
  std::vector<T> list(size);
  if (size > 0 && !IsAnswered(api, ask(list.data(), &size))) return std::nullopt;
  return list;
}

// Asks for an attribute as one kind after the other.
class AttributeReader {
 public:
  AttributeReader(Api* api, const KernelInfo* info) : api_(api), info_(info) {}

  std::optional<Attribute> Read(const AttributeDef& def) const {
    const char* name = def.name.c_str();
    return std::visit(
        [&](const auto& kind) -> std::optional<Attribute> {
          using Kind = std::decay_t<decltype(kind)>;
          if constexpr (std::is_same_v<Kind, std::monostate>) {
            return ReadAny(name);
          } else {
            return ReadAs(name, Kind());
          }
        },
        def.default_value);
  }

 private:
  std::optional<Attribute> ReadAny(const char* name) const {
    std::optional<Attribute> value = ReadAs(name, int64_t{});
    if (!value) value = ReadAs(name, float{});
    if (!value) value = ReadAs(name, std::string());
    if (value) return value;
    // A list that is not there is an error to some releases and empty to others.
    value = ReadAs(name, std::vector<int64_t>());
    if (value && !std::get<std::vector<int64_t>>(value->value).empty()) return value;
    value = ReadAs(name, std::vector<float>());
    if (value && !std::get<std::vector<float>>(value->value).empty()) return value;
    return std::nullopt;
  }

  std::optional<Attribute> ReadAs(const char* name, int64_t value) const {
    if (!IsAnswered(api_, kKernelInfoGetAttributeInt64(api_, info_, name, &value))) return {};
    return Attribute{.value = value};
  }
  std::optional<Attribute> ReadAs(const char* name, float value) const {
    if (!IsAnswered(api_, kKernelInfoGetAttributeFloat(api_, info_, name, &value))) return {};
    return Attribute{.value = value};
  }
  std::optional<Attribute> ReadAs(const char* name, const std::string&) const {
    return Wrapped(AskText(api_, [&](char* out, size_t* size) {
      return kKernelInfoGetAttributeString(api_, info_, name, out, size);
    }));
  }
  std::optional<Attribute> ReadAs(const char* name, const std::vector<int64_t>&) const {
    return Wrapped(AskList<int64_t>(api_, [&](int64_t* out, size_t* size) {
      return kKernelInfoGetAttributeInt64s(api_, info_, name, out, size);
    }));
  }
  std::optional<Attribute> ReadAs(const char* name, const std::vector<float>&) const {
    return Wrapped(AskList<float>(api_, [&](float* out, size_t* size) {
      return kKernelInfoGetAttributeFloats(api_, info_, name, out, size);
    }));
  }

  template <typename T>
  static std::optional<Attribute> Wrapped(std::optional<T> value) {
    if (!value) return std::nullopt;
    return Attribute{.value = *std::move(value)};
  }

  Api* api_;
  const KernelInfo* info_;
};

// Dims with the names of those that are symbols.
std::optional<Shape> AskShape(Api* api, const TensorTypeAndShapeInfo* info) {
  size_t rank = 0;
  if (!IsAnswered(api, kGetDimensionsCount(api, info, &rank))) return std::nullopt;
  std::vector<int64_t> dims(rank);
  std::vector<const char*> symbols(rank, "");
  if (!IsAnswered(api, kGetDimensions(api, info, dims.data(), rank)) ||
      !IsAnswered(api, kGetSymbolicDimensions(api, info, symbols.data(), rank))) {
    return std::nullopt;
  }
  Shape shape;
  for (size_t i = 0; i < rank; ++i) {
    shape.dims().push_back(dims[i] >= 0 ? Dim(dims[i]) : Dim::Parse(symbols[i]));
  }
  return shape;
}

// Sets type and shape of a port. It stays omitted where the host has no type.
template <typename Ask>
void AskType(Api* api, const Ask& ask, NodeSpec::Port& port) {
  TypeInfo* info = nullptr;
  if (!IsAnswered(api, ask(&info))) return;
  const TensorTypeAndShapeInfo* tensor = nullptr;
  ElementType type = 0;
  if (IsAnswered(api, kCastTypeInfoToTensorInfo(api, info, &tensor)) && tensor != nullptr &&
      IsAnswered(api, kGetTensorElementType(api, tensor, &type))) {
    port.dtype = DataTypeFromCode(type).value_or(DataType::kUndefined);
    port.shape = AskShape(api, tensor);
  }
  kReleaseTypeInfo(api, info);
}

// The value of an input, if it is a constant.
absl::StatusOr<Tensor> Constant(Api* api, const KernelInfo* info, size_t input) {
  int is_constant = 0;
  const Value* value = nullptr;
  PF_RETURN_IF_ERROR(
      FromOrtStatus(api, kKernelInfoGetConstantInput(api, info, input, &is_constant, &value)));
  if (is_constant == 0 || value == nullptr) return Tensor();
  PF_ASSIGN_OR_RETURN(const TensorArg arg, ArgOf(api, value));
  PF_ASSIGN_OR_RETURN(const int64_t bytes, ByteSize(arg.dtype, arg.dims));
  return Tensor::View(arg.dtype, arg.dims, Buffer::BorrowConst(arg.data, bytes));
}

absl::StatusOr<std::vector<NodeSpec::Port>> ReadInputs(Api* api, const KernelInfo* info,
                                                       size_t declared) {
  size_t count = 0;
  PF_RETURN_IF_ERROR(FromOrtStatus(api, kKernelInfoGetInputCount(api, info, &count)));
  std::vector<NodeSpec::Port> inputs(std::min(count, declared));
  for (size_t i = 0; i < inputs.size(); ++i) {
    NodeSpec::Port& port = inputs[i];
    port.name = AskText(api, [&](char* out, size_t* size) {
                  return kKernelInfoGetInputName(api, info, i, out, size);
                }).value_or("");
    if (port.name.empty()) continue;
    AskType(
        api, [&](TypeInfo** out) { return kKernelInfoGetInputTypeInfo(api, info, i, out); }, port);
    if (port.dtype == DataType::kUndefined) continue;
    PF_ASSIGN_OR_RETURN(port.constant, Constant(api, info, i));
  }
  return inputs;
}

absl::StatusOr<std::vector<NodeSpec::Port>> ReadOutputs(Api* api, const KernelInfo* info,
                                                        size_t declared) {
  size_t count = 0;
  PF_RETURN_IF_ERROR(FromOrtStatus(api, kKernelInfoGetOutputCount(api, info, &count)));
  std::vector<NodeSpec::Port> outputs(std::min(count, declared));
  for (size_t i = 0; i < outputs.size(); ++i) {
    NodeSpec::Port& port = outputs[i];
    port.name = AskText(api, [&](char* out, size_t* size) {
                  return kKernelInfoGetOutputName(api, info, i, out, size);
                }).value_or("");
    if (port.name.empty()) continue;
    AskType(
        api, [&](TypeInfo** out) { return kKernelInfoGetOutputTypeInfo(api, info, i, out); }, port);
  }
  return outputs;
}

}  // namespace

absl::StatusOr<NodeSpec> ReadNodeSpec(Api* api, const KernelInfo* info, const OpDef& op) {
  NodeSpec spec;
  spec.name = AskText(api, [&](char* out, size_t* size) {
                return kKernelInfoGetNodeName(api, info, out, size);
              }).value_or("");
  const AttributeReader attributes(api, info);
  for (const AttributeDef& def : op.attributes()) {
    if (auto value = attributes.Read(def))
      spec.attributes.emplace_back(def.name, *std::move(value));
  }
  PF_ASSIGN_OR_RETURN(spec.inputs, ReadInputs(api, info, op.inputs().size()));
  PF_ASSIGN_OR_RETURN(spec.outputs, ReadOutputs(api, info, op.outputs().size()));
  return spec;
}

absl::StatusOr<TensorArg> ArgOf(Api* api, const Value* value) {
  TensorArg arg;
  if (value == nullptr) return arg;
  TensorTypeAndShapeInfo* info = nullptr;
  PF_RETURN_IF_ERROR(FromOrtStatus(api, kGetTensorTypeAndShape(api, value, &info)));
  const auto read = [&]() -> absl::Status {
    ElementType type = 0;
    size_t rank = 0;
    PF_RETURN_IF_ERROR(FromOrtStatus(api, kGetTensorElementType(api, info, &type)));
    PF_RETURN_IF_ERROR(FromOrtStatus(api, kGetDimensionsCount(api, info, &rank)));
    arg.dims.resize(rank);
    PF_RETURN_IF_ERROR(FromOrtStatus(api, kGetDimensions(api, info, arg.dims.data(), rank)));
    arg.dtype = static_cast<DataType>(type);
    return FromOrtStatus(api, kGetTensorMutableData(api, const_cast<Value*>(value), &arg.data));
  };
  const absl::Status status = read();
  kReleaseTensorTypeAndShapeInfo(api, info);
  PF_RETURN_IF_ERROR(status);
  return arg;
}

}  // namespace pagefuse::ort
