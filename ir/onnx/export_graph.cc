// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ir/onnx/export_graph.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/onnx/onnx_proto.h"
#include "pagefuse/ir/onnx/type_proto.h"

namespace pagefuse {
namespace {

using onnx::AttributeProto;

// Writes the value of an attribute and its type.
class AttributeWriter {
 public:
  AttributeWriter(const Attribute& attribute, ExportContext& context, AttributeProto* proto)
      : attribute_(attribute), context_(context), proto_(proto) {}

  absl::Status operator()(float value) {
    proto_->set_f(value);
    return Type(AttributeProto::FLOAT);
  }
  absl::Status operator()(int64_t value) {
    proto_->set_i(value);
    return Type(AttributeProto::INT);
  }
  absl::Status operator()(const std::string& value) {
    proto_->set_s(value);
    return Type(AttributeProto::STRING);
  }
  absl::Status operator()(const Tensor& value) {
    PF_RETURN_IF_ERROR(WriteTensor(value, 0, proto_->mutable_t()));
    return Type(AttributeProto::TENSOR);
  }
  absl::Status operator()(const std::shared_ptr<Graph>& value) {
    PF_RETURN_IF_ERROR(ExportGraph(*value, context_, proto_->mutable_g()));
    return Type(AttributeProto::GRAPH);
  }
  absl::Status operator()(const std::vector<float>& value) {
    proto_->mutable_floats()->Add(value.begin(), value.end());
    return Type(AttributeProto::FLOATS);
  }
  absl::Status operator()(const std::vector<int64_t>& value) {
    proto_->mutable_ints()->Add(value.begin(), value.end());
    return Type(AttributeProto::INTS);
  }
  absl::Status operator()(const std::vector<std::string>& value) {
    for (const std::string& text : value) proto_->add_strings(text);
    return Type(AttributeProto::STRINGS);
  }
  absl::Status operator()(const std::vector<Tensor>& value) {
    for (size_t i = 0; i < value.size(); ++i) {
      PF_RETURN_IF_ERROR(WriteTensor(value[i], i, proto_->add_tensors()));
    }
    return Type(AttributeProto::TENSORS);
  }
  absl::Status operator()(const Attribute::Graphs& value) {
    for (const std::shared_ptr<Graph>& graph : value) {
      PF_RETURN_IF_ERROR(ExportGraph(*graph, context_, proto_->add_graphs()));
    }
    return Type(AttributeProto::GRAPHS);
  }
  absl::Status operator()(const AttributeRef& value) {
    proto_->set_ref_attr_name(value.name);
    if (!AttributeProto::AttributeType_IsValid(value.onnx_type)) return absl::OkStatus();
    return Type(static_cast<AttributeProto::AttributeType>(value.onnx_type));
  }
  absl::Status operator()(const OpaqueAttribute& value) { return MergeFields(value.proto, proto_); }

 private:
  absl::Status Type(AttributeProto::AttributeType type) {
    proto_->set_type(type);
    return absl::OkStatus();
  }

  absl::Status WriteTensor(const Tensor& tensor, size_t index, onnx::TensorProto* proto) {
    const auto& fields = attribute_.tensor_fields;
    return ExportTensor(tensor, index < fields.size() ? fields[index] : "", false, context_, proto);
  }

  const Attribute& attribute_;
  ExportContext& context_;
  AttributeProto* proto_;
};

absl::Status ExportInitializer(const Value& value, ExportContext& context,
                               onnx::GraphProto* proto) {
  if (!value.sparse_proto.empty()) {
    onnx::SparseTensorProto* sparse = proto->add_sparse_initializer();
    PF_RETURN_IF_ERROR(MergeFields(value.sparse_proto, sparse));
    sparse->mutable_values()->set_name(value.name());
    return absl::OkStatus();
  }
  onnx::TensorProto* tensor = proto->add_initializer();
  tensor->set_name(value.name());
  return ExportTensor(*value.initializer(), value.tensor_fields, true, context, tensor);
}

// True if export says something of an inner value.
bool IsListed(const Value& value) {
  if (value.listed) return true;
  if (value.is_input() || value.is_output() || value.initializer() != nullptr) return false;
  return value.dtype() != DataType::kUndefined || value.shape() || !value.type_proto.empty();
}

}  // namespace

void ExportValueInfo(const Value& value, onnx::ValueInfoProto* proto) {
  // Fields of a value that was input and inner value may be there twice; they are only carried
  // along.
  if (!MergeFields(value.unknown_fields, proto).ok()) proto->Clear();
  proto->set_name(value.name());
  onnx::TypeProto type;
  if (ExportType(value, &type)) *proto->mutable_type() = std::move(type);
  if (!value.doc_string.empty()) proto->set_doc_string(value.doc_string);
  AddUnknownMetadata(*proto, field::kValueInfoMetadata, value.metadata);
}

absl::Status ExportAttribute(const std::string& name, const Attribute& attribute,
                             ExportContext& context, AttributeProto* proto) {
  PF_RETURN_IF_ERROR(MergeFields(attribute.unknown_fields, proto));
  if (!attribute.doc_string.empty()) proto->set_doc_string(attribute.doc_string);
  PF_RETURN_IF_ERROR(std::visit(AttributeWriter(attribute, context, proto), attribute.value));
  proto->set_name(name);
  return absl::OkStatus();
}

absl::Status ExportNode(const Node& node, ExportContext& context, onnx::NodeProto* proto) {
  PF_RETURN_IF_ERROR(MergeFields(node.unknown_fields, proto));
  for (const Value* value : node.inputs()) proto->add_input(value == nullptr ? "" : value->name());
  for (const Value* value : node.outputs()) {
    proto->add_output(value == nullptr ? "" : value->name());
  }
  if (!node.name.empty()) proto->set_name(node.name);
  proto->set_op_type(node.op_type());
  if (!node.domain().empty()) proto->set_domain(node.domain());
  if (!node.doc_string.empty()) proto->set_doc_string(node.doc_string);
  if (!node.overload.empty()) AddUnknown(*proto, field::kNodeOverload, node.overload);
  AddUnknownMetadata(*proto, field::kNodeMetadata, node.metadata);
  for (const auto& [name, attribute] : node.attributes()) {
    PF_RETURN_IF_ERROR(AtPlace(node.Description(),
                               ExportAttribute(name, attribute, context, proto->add_attribute())));
  }
  return absl::OkStatus();
}

absl::Status ExportGraph(const Graph& graph, ExportContext& context, onnx::GraphProto* proto) {
  PF_RETURN_IF_ERROR(MergeFields(graph.unknown_fields, proto));
  if (!graph.name.empty()) proto->set_name(graph.name);
  if (!graph.doc_string.empty()) proto->set_doc_string(graph.doc_string);
  AddUnknownMetadata(*proto, field::kGraphMetadata, graph.metadata);
  for (const auto& node : graph.nodes()) {
    PF_RETURN_IF_ERROR(ExportNode(*node, context, proto->add_node()));
  }
  for (const Value* value : graph.initializers()) {
    PF_RETURN_IF_ERROR(ExportInitializer(*value, context, proto));
  }
  for (const Value* value : graph.inputs()) ExportValueInfo(*value, proto->add_input());
  for (const Value* value : graph.outputs()) ExportValueInfo(*value, proto->add_output());
  for (const Value* value : graph.values()) {
    if (IsListed(*value)) ExportValueInfo(*value, proto->add_value_info());
  }
  return absl::OkStatus();
}

}  // namespace pagefuse
