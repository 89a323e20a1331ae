// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ir/onnx/import_graph.h"

#include <utility>

#include "absl/container/flat_hash_set.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/graph/verify.h"
#include "pagefuse/ir/onnx/import_tensor.h"
#include "pagefuse/ir/onnx/onnx_proto.h"
#include "pagefuse/ir/onnx/type_proto.h"

namespace pagefuse {
namespace {

using google::protobuf::RepeatedPtrField;
using NodeList = RepeatedPtrField<onnx::NodeProto>;
using ValueInfoList = RepeatedPtrField<onnx::ValueInfoProto>;

// Looking attributes up is linear.
constexpr int kMaxAttributes = 4096;

template <typename... Parts>
absl::Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(StrCat(parts...));
}

// As Node::Description, for a node that is not there yet.
std::string NodePlace(const onnx::NodeProto& proto) {
  std::string label = proto.name();
  for (int i = 0; label.empty() && i < proto.output_size(); ++i) label = proto.output(i);
  const bool standard = proto.domain().empty() || proto.domain() == "ai.onnx";
  return StrCat("node \"", label, "\" (", standard ? "" : StrCat(proto.domain(), "."),
                proto.op_type(), ")");
}

absl::Status ImportValueInfo(onnx::ValueInfoProto& info, Value& value) {
  const std::string place = StrCat("value \"", value.name(), "\"");
  if (info.has_type()) PF_RETURN_IF_ERROR(AtPlace(place, ImportType(info.type(), value)));
  if (!info.doc_string().empty()) value.doc_string = info.doc_string();
  absl::StatusOr<Metadata> metadata = TakeUnknownMetadata(info, field::kValueInfoMetadata);
  PF_RETURN_IF_ERROR(AtPlace(place, metadata.status()));
  if (!metadata->empty()) value.metadata = *std::move(metadata);
  info.clear_name();
  info.clear_type();
  info.clear_doc_string();
  // A value may be an inner value and an output: the fields go to both again.
  std::string rest = info.SerializePartialAsString();
  if (!rest.empty()) value.unknown_fields = std::move(rest);
  return absl::OkStatus();
}

absl::Status ImportInputs(ValueInfoList& inputs, Graph& graph) {
  for (onnx::ValueInfoProto& info : inputs) {
    if (info.name().empty()) return Invalid("a graph input has no name");
    if (graph.FindValue(info.name()) != nullptr) {
      return Invalid("graph input \"", info.name(), "\" is listed twice");
    }
    Value* value = graph.AddInput(info.name(), DataType::kUndefined, std::nullopt);
    PF_RETURN_IF_ERROR(ImportValueInfo(info, *value));
  }
  inputs.Clear();
  return absl::OkStatus();
}

absl::StatusOr<Value*> AddInitializer(const std::string& name, Tensor tensor, Graph& graph) {
  Value* value = graph.FindValue(name);
  if (value == nullptr) return graph.AddInitializer(name, std::move(tensor));
  if (value->initializer() != nullptr) return Invalid("is defined twice");
  graph.SetInitializer(value, std::move(tensor));
  return value;
}

absl::Status ImportInitializer(onnx::TensorProto& proto, const ImportContext& context,
                               Graph& graph) {
  if (proto.name().empty()) return Invalid("it has no name");
  PF_ASSIGN_OR_RETURN(Tensor tensor, TakeTensor(proto, *context.external));
  PF_ASSIGN_OR_RETURN(Value * value, AddInitializer(proto.name(), std::move(tensor), graph));
  proto.clear_name();
  value->tensor_fields = proto.SerializePartialAsString();
  return absl::OkStatus();
}

absl::Status ImportSparseInitializer(const onnx::SparseTensorProto& proto,
                                     const ImportContext& context, Graph& graph) {
  if (proto.values().name().empty()) return Invalid("it has no name");
  PF_ASSIGN_OR_RETURN(Tensor tensor, ImportSparse(proto, *context.external));
  PF_ASSIGN_OR_RETURN(Value * value,
                      AddInitializer(proto.values().name(), std::move(tensor), graph));
  // A copy of the message would not find the files from another folder; such a tensor becomes
  // dense.
  const bool is_external = proto.values().data_location() == onnx::TensorProto::EXTERNAL ||
                           proto.indices().data_location() == onnx::TensorProto::EXTERNAL;
  if (!is_external) value->sparse_proto = proto.SerializePartialAsString();
  return absl::OkStatus();
}

absl::Status ImportInitializers(onnx::GraphProto& proto, const ImportContext& context,
                                Graph& graph) {
  for (onnx::TensorProto& tensor : *proto.mutable_initializer()) {
    const std::string place = StrCat("initialiser \"", tensor.name(), "\"");
    PF_RETURN_IF_ERROR(AtPlace(place, ImportInitializer(tensor, context, graph)));
  }
  for (const onnx::SparseTensorProto& tensor : proto.sparse_initializer()) {
    const std::string place = StrCat("initialiser \"", tensor.values().name(), "\"");
    PF_RETURN_IF_ERROR(AtPlace(place, ImportSparseInitializer(tensor, context, graph)));
  }
  proto.clear_initializer();
  proto.clear_sparse_initializer();
  return absl::OkStatus();
}

// The names that nodes compute, which must be new and different.
absl::StatusOr<absl::flat_hash_set<std::string>> OutputNames(const NodeList& nodes,
                                                             const Graph& graph) {
  absl::flat_hash_set<std::string> names;
  for (const onnx::NodeProto& node : nodes) {
    for (int i = 0; i < node.output_size(); ++i) {
      const std::string& name = node.output(i);
      if (name.empty()) continue;
      const Value* value = graph.FindValue(name);
      if (value != nullptr || !names.insert(name).second) {
        return Invalid(NodePlace(node), ": output ", i, " \"", name,
                       "\": expected a new name, got that of ",
                       value == nullptr    ? "another output"
                       : value->is_input() ? "a graph input"
                                           : "an initialiser");
      }
    }
  }
  return names;
}

// Types of inner values. Entries that name no value of this graph stay in the list.
absl::Status ImportValueInfos(ValueInfoList& infos, const absl::flat_hash_set<std::string>& outputs,
                              Graph& graph) {
  ValueInfoList others;
  for (onnx::ValueInfoProto& info : infos) {
    Value* value = graph.FindValue(info.name());
    if (value == nullptr && outputs.contains(info.name())) value = graph.AddValue(info.name());
    if (value == nullptr) {
      others.Add(std::move(info));
      continue;
    }
    if (value->listed) return Invalid("value \"", info.name(), "\": its type is given twice");
    value->listed = true;
    if (!value->is_input()) PF_RETURN_IF_ERROR(ImportValueInfo(info, *value));
  }
  infos.Swap(&others);
  return absl::OkStatus();
}

absl::Status ImportAttributes(onnx::NodeProto& proto, const ImportContext& context, Node& node) {
  if (proto.attribute_size() > kMaxAttributes) {
    return Invalid("expected at most ", kMaxAttributes, " attributes, got ",
                   proto.attribute_size());
  }
  for (onnx::AttributeProto& attribute : *proto.mutable_attribute()) {
    const std::string name = attribute.name();
    const std::string place = StrCat("attribute \"", name, "\"");
    if (name.empty()) return Invalid("an attribute has no name");
    if (node.attribute(name) != nullptr) return Invalid(place, ": is there twice");
    absl::StatusOr<Attribute> value = ImportAttribute(attribute, node.graph(), context);
    PF_RETURN_IF_ERROR(AtPlace(place, value.status()));
    node.SetAttribute(name, *std::move(value));
  }
  return absl::OkStatus();
}

absl::Status ImportNode(onnx::NodeProto& proto, const ImportContext& context, Graph& graph) {
  if (proto.op_type().empty()) return Invalid("it has no operator type");
  std::vector<Value*> inputs;
  for (int i = 0; i < proto.input_size(); ++i) {
    const std::string& name = proto.input(i);
    inputs.push_back(name.empty() ? nullptr : graph.FindValueInScope(name));
    if (!name.empty() && inputs.back() == nullptr) {
      return Invalid("input ", i, " \"", name,
                     "\": expected a value that a node computes, an input or an initialiser, got "
                     "an unknown name");
    }
  }
  std::vector<Value*> outputs;
  for (const std::string& name : proto.output()) {
    outputs.push_back(name.empty() ? nullptr : graph.FindValue(name));
  }
  Node* node =
      graph.AddNode(proto.domain(), proto.op_type(), std::move(inputs), std::move(outputs));
  node->name = proto.name();
  node->doc_string = proto.doc_string();
  PF_RETURN_IF_ERROR(ImportAttributes(proto, context, *node));
  node->overload = TakeUnknownString(proto, field::kNodeOverload);
  PF_ASSIGN_OR_RETURN(node->metadata, TakeUnknownMetadata(proto, field::kNodeMetadata));
  proto.clear_input();
  proto.clear_output();
  proto.clear_name();
  proto.clear_op_type();
  proto.clear_domain();
  proto.clear_attribute();
  proto.clear_doc_string();
  node->unknown_fields = proto.SerializePartialAsString();
  return absl::OkStatus();
}

absl::Status ImportOutputs(ValueInfoList& outputs, Graph& graph) {
  for (onnx::ValueInfoProto& info : outputs) {
    const Value* known = graph.FindValue(info.name());
    // A value may be several outputs; what is said of the first holds for all.
    const bool again = known != nullptr && known->is_output();
    PF_ASSIGN_OR_RETURN(Value * value, ImportOutput(info.name(), graph));
    if (!value->is_input() && !again) PF_RETURN_IF_ERROR(ImportValueInfo(info, *value));
  }
  outputs.Clear();
  return absl::OkStatus();
}

// What a file declares of a constant must fit; the tensor knows it better.
absl::Status SettleInitializers(const Graph& graph) {
  for (Value* value : graph.initializers()) {
    const Tensor& tensor = *value->initializer();
    if (value->dtype() == DataType::kUndefined) value->set_dtype(tensor.dtype());
    PF_RETURN_IF_ERROR(VerifyInitializer(*value));
    if (value->IsConstant()) value->set_shape(Shape::FromInts(tensor.dims()));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Value*> ImportOutput(const std::string& name, Graph& graph) {
  Value* value = graph.FindValue(name);
  if (value == nullptr) {
    return Invalid("graph output \"", name,
                   "\": expected a value that a node computes, an input or an initialiser, got an "
                   "unknown name");
  }
  graph.AddOutput(value);
  return value;
}

absl::Status ImportBody(NodeList& nodes, ValueInfoList& value_info, const ImportContext& context,
                        Graph& graph) {
  PF_ASSIGN_OR_RETURN(const auto outputs, OutputNames(nodes, graph));
  PF_RETURN_IF_ERROR(ImportValueInfos(value_info, outputs, graph));
  // All outputs first: files need not be in topological order.
  for (const onnx::NodeProto& node : nodes) {
    for (const std::string& name : node.output()) {
      if (!name.empty() && graph.FindValue(name) == nullptr) graph.AddValue(name);
    }
  }
  for (onnx::NodeProto& node : nodes) {
    const std::string place = NodePlace(node);
    PF_RETURN_IF_ERROR(AtPlace(place, ImportNode(node, context, graph)));
  }
  nodes.Clear();
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Graph>> ImportGraph(onnx::GraphProto& proto, Graph* parent,
                                                   const ImportContext& context) {
  if (context.depth > context.max_depth) {
    return Invalid("expected graphs nested at most ", context.max_depth, " deep");
  }
  auto graph = std::make_unique<Graph>(parent);
  graph->name = proto.name();
  graph->doc_string = proto.doc_string();
  PF_RETURN_IF_ERROR(ImportInputs(*proto.mutable_input(), *graph));
  PF_RETURN_IF_ERROR(ImportInitializers(proto, context, *graph));
  PF_RETURN_IF_ERROR(
      ImportBody(*proto.mutable_node(), *proto.mutable_value_info(), context, *graph));
  PF_RETURN_IF_ERROR(ImportOutputs(*proto.mutable_output(), *graph));
  PF_RETURN_IF_ERROR(SettleInitializers(*graph));
  PF_ASSIGN_OR_RETURN(graph->metadata, TakeUnknownMetadata(proto, field::kGraphMetadata));
  proto.clear_name();
  proto.clear_doc_string();
  graph->unknown_fields = proto.SerializePartialAsString();
  return graph;
}

}  // namespace pagefuse
