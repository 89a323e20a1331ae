// SPDX-License-Identifier: Apache-2.0
// What texts and protobuf messages share: types that are no plain tensors, attributes that are kept
// as bytes.

#include "pagefuse/ir/onnx/onnx_proto.h"
#include "pagefuse/ir/onnx/type_proto.h"
#include "pagefuse/ir/text/text.h"
#include "pagefuse/ir/text/text_parser.h"
#include "pagefuse/ir/text/text_type.h"

namespace pagefuse {
namespace {

template <typename TensorProto>
void WriteTensor(const TextType& type, TensorProto& proto) {
  if (type.element != DataType::kUndefined) {
    proto.set_elem_type(static_cast<int32_t>(type.element));
  }
  if (!type.dims) return;
  onnx::TensorShapeProto& shape = *proto.mutable_shape();
  for (const TextType::TextDim& dim : *type.dims) {
    auto* entry = shape.add_dim();
    if (dim.number) entry->set_dim_value(*dim.number);
    if (dim.symbol) entry->set_dim_param(*dim.symbol);
  }
}

void Write(const TextType& type, onnx::TypeProto& proto) {
  if (type.proto) {
    (void)ParseProto(*type.proto, kKeptMessageDepth, proto);  // they were read before
    return;
  }
  switch (type.kind) {
    case TextType::Kind::kTensor:
      return WriteTensor(type, *proto.mutable_tensor_type());
    case TextType::Kind::kSparseTensor:
      return WriteTensor(type, *proto.mutable_sparse_tensor_type());
    case TextType::Kind::kSequence:
      return Write(type.inner[0], *proto.mutable_sequence_type()->mutable_elem_type());
    case TextType::Kind::kOptional:
      return Write(type.inner[0], *proto.mutable_optional_type()->mutable_elem_type());
    case TextType::Kind::kMap:
      proto.mutable_map_type()->set_key_type(static_cast<int32_t>(type.element));
      return Write(type.inner[0], *proto.mutable_map_type()->mutable_value_type());
    case TextType::Kind::kOpaque:
      proto.mutable_opaque_type();
      if (!type.domain.empty()) proto.mutable_opaque_type()->set_domain(type.domain);
      if (!type.name.empty()) proto.mutable_opaque_type()->set_name(type.name);
      return;
    case TextType::Kind::kOther:
      return;
  }
}

onnx::TypeProto ToProto(const TextType& type) {
  onnx::TypeProto proto;
  Write(type, proto);
  return proto;
}

OpaqueAttribute OpaqueOf(const onnx::AttributeProto& proto) { return {proto.SerializeAsString()}; }

class OnnxProtos final : public TextProtos {
 public:
  bool ReadType(const std::string& bytes, TextType& type) const override {
    onnx::TypeProto proto;
    if (!ParseProto(bytes, kKeptMessageDepth, proto).ok()) return false;
    type.proto = bytes;
    type.kind = proto.has_tensor_type() ? TextType::Kind::kTensor : TextType::Kind::kOther;
    if (!proto.has_tensor_type()) return true;
    type.element = DataTypeFromCode(proto.tensor_type().elem_type()).value_or(DataType::kUndefined);
    if (!proto.tensor_type().has_shape()) return true;
    type.dims.emplace();
    for (const auto& dim : proto.tensor_type().shape().dim()) {
      TextType::TextDim& entry = type.dims->emplace_back();
      if (dim.has_dim_value()) entry.number = dim.dim_value();
      if (dim.has_dim_param()) entry.symbol = dim.dim_param();
    }
    return true;
  }

  bool IsAttribute(const std::string& bytes) const override {
    onnx::AttributeProto proto;
    return ParseProto(bytes, kKeptMessageDepth, proto).ok();
  }

  std::string TypeBytes(const TextType& type) const override {
    return ToProto(type).SerializeAsString();
  }

  absl::Status SetType(const TextType& type, Value& value) const override {
    return ImportType(ToProto(type), value);
  }

  OpaqueAttribute TypeAttribute(const TextType& type) const override {
    onnx::AttributeProto proto;
    *proto.mutable_tp() = ToProto(type);
    proto.set_type(onnx::AttributeProto::TYPE_PROTO);
    return OpaqueOf(proto);
  }

  OpaqueAttribute EmptyAttribute(int attribute_type) const override {
    onnx::AttributeProto proto;
    proto.set_type(static_cast<onnx::AttributeProto::AttributeType>(attribute_type));
    return OpaqueOf(proto);
  }

  OpaqueAttribute TypeList(const std::vector<OpaqueAttribute>& types) const override {
    onnx::AttributeProto list, item;
    for (const OpaqueAttribute& type : types) {
      item.ParseFromString(type.proto);
      list.add_type_protos()->Swap(item.mutable_tp());
    }
    list.set_type(onnx::AttributeProto::TYPE_PROTOS);
    return OpaqueOf(list);
  }

  OpaqueAttribute Named(const OpaqueAttribute& attribute, const std::string& name) const override {
    onnx::AttributeProto proto;
    if (!proto.ParseFromString(attribute.proto)) return attribute;
    proto.set_name(name);
    return OpaqueOf(proto);
  }

  std::string TensorFields(const std::string& name) const override {
    onnx::TensorProto fields;
    fields.set_name(name);
    return fields.SerializePartialAsString();
  }
};

}  // namespace

const TextProtos& OnnxTextProtos() {
  static const OnnxProtos protos;
  return protos;
}

absl::StatusOr<Model> ParseModel(std::string_view text) {
  return TextParser(text, &OnnxTextProtos()).ParseModel();
}

absl::StatusOr<Function> ParseFunction(std::string_view text) {
  return TextParser(text, &OnnxTextProtos()).ParseFunction();
}

}  // namespace pagefuse
