// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/onnx/import_graph.h"
#include "pagefuse/ir/onnx/import_tensor.h"

namespace pagefuse {
namespace {

using onnx::AttributeProto;

// Files of IR version 1 have no type; the field that is set tells it.
AttributeProto::AttributeType TypeOf(const AttributeProto& proto) {
  if (proto.has_type() && proto.type() != AttributeProto::UNDEFINED) return proto.type();
  if (proto.has_f()) return AttributeProto::FLOAT;
  if (proto.has_i()) return AttributeProto::INT;
  if (proto.has_s()) return AttributeProto::STRING;
  if (proto.has_t()) return AttributeProto::TENSOR;
  if (proto.has_g()) return AttributeProto::GRAPH;
  if (proto.floats_size() > 0) return AttributeProto::FLOATS;
  if (proto.ints_size() > 0) return AttributeProto::INTS;
  if (proto.strings_size() > 0) return AttributeProto::STRINGS;
  if (proto.tensors_size() > 0) return AttributeProto::TENSORS;
  if (proto.graphs_size() > 0) return AttributeProto::GRAPHS;
  return AttributeProto::UNDEFINED;
}

// Takes one tensor, and notes what else its message says.
absl::StatusOr<Tensor> TakeTensorValue(onnx::TensorProto& proto, const ImportContext& context,
                                       Attribute& attribute) {
  PF_ASSIGN_OR_RETURN(Tensor tensor, TakeTensor(proto, *context.external));
  attribute.tensor_fields.push_back(proto.SerializePartialAsString());
  return tensor;
}

absl::StatusOr<std::shared_ptr<Graph>> TakeGraph(onnx::GraphProto& proto, Graph* graph,
                                                 ImportContext context) {
  ++context.depth;
  PF_ASSIGN_OR_RETURN(std::unique_ptr<Graph> subgraph, ImportGraph(proto, graph, context));
  return std::shared_ptr<Graph>(std::move(subgraph));
}

absl::Status TakeTensors(AttributeProto& proto, const ImportContext& context,
                         Attribute& attribute) {
  std::vector<Tensor> tensors;
  for (onnx::TensorProto& entry : *proto.mutable_tensors()) {
    PF_ASSIGN_OR_RETURN(Tensor tensor, TakeTensorValue(entry, context, attribute));
    tensors.push_back(std::move(tensor));
  }
  attribute.value = std::move(tensors);
  return absl::OkStatus();
}

absl::Status TakeGraphs(AttributeProto& proto, Graph* graph, const ImportContext& context,
                        Attribute& attribute) {
  Attribute::Graphs graphs;
  for (onnx::GraphProto& entry : *proto.mutable_graphs()) {
    PF_ASSIGN_OR_RETURN(std::shared_ptr<Graph> subgraph, TakeGraph(entry, graph, context));
    graphs.push_back(std::move(subgraph));
  }
  attribute.value = std::move(graphs);
  return absl::OkStatus();
}

// Takes a value that is no list of messages out of `proto`.
absl::Status TakeValue(AttributeProto& proto, Graph* graph, const ImportContext& context,
                       Attribute& attribute) {
  switch (TypeOf(proto)) {
    case AttributeProto::FLOAT:
      attribute.value = proto.f();
      break;
    case AttributeProto::INT:
      attribute.value = int64_t{proto.i()};
      break;
    case AttributeProto::STRING:
      attribute.value = proto.s();
      break;
    case AttributeProto::FLOATS:
      attribute.value = std::vector<float>(proto.floats().begin(), proto.floats().end());
      break;
    case AttributeProto::INTS:
      attribute.value = std::vector<int64_t>(proto.ints().begin(), proto.ints().end());
      break;
    case AttributeProto::STRINGS:
      attribute.value = std::vector<std::string>(proto.strings().begin(), proto.strings().end());
      break;
    case AttributeProto::TENSOR: {
      PF_ASSIGN_OR_RETURN(attribute.value, TakeTensorValue(*proto.mutable_t(), context, attribute));
      break;
    }
    case AttributeProto::GRAPH: {
      PF_ASSIGN_OR_RETURN(attribute.value, TakeGraph(*proto.mutable_g(), graph, context));
      break;
    }
    case AttributeProto::TENSORS:
      return TakeTensors(proto, context, attribute);
    case AttributeProto::GRAPHS:
      return TakeGraphs(proto, graph, context, attribute);
    default:
      attribute.value = OpaqueAttribute{proto.SerializePartialAsString()};
  }
  return absl::OkStatus();
}

// Clears the field that holds a value of that type.
void ClearValue(AttributeProto::AttributeType type, AttributeProto& proto) {
  const int number = [type] {
    switch (type) {
      case AttributeProto::FLOAT:
        return AttributeProto::kFFieldNumber;
      case AttributeProto::INT:
        return AttributeProto::kIFieldNumber;
      case AttributeProto::STRING:
        return AttributeProto::kSFieldNumber;
      case AttributeProto::TENSOR:
        return AttributeProto::kTFieldNumber;
      case AttributeProto::GRAPH:
        return AttributeProto::kGFieldNumber;
      case AttributeProto::FLOATS:
        return AttributeProto::kFloatsFieldNumber;
      case AttributeProto::INTS:
        return AttributeProto::kIntsFieldNumber;
      case AttributeProto::STRINGS:
        return AttributeProto::kStringsFieldNumber;
      case AttributeProto::TENSORS:
        return AttributeProto::kTensorsFieldNumber;
      default:
        return AttributeProto::kGraphsFieldNumber;
    }
  }();
  const auto* reflection = proto.GetReflection();
  reflection->ClearField(&proto, proto.GetDescriptor()->FindFieldByNumber(number));
}

}  // namespace

absl::StatusOr<Attribute> ImportAttribute(AttributeProto& proto, Graph* graph,
                                          const ImportContext& context) {
  Attribute attribute;
  if (!proto.ref_attr_name().empty()) {
    attribute.value = AttributeRef{proto.ref_attr_name(), static_cast<int32_t>(proto.type())};
    proto.clear_ref_attr_name();
  } else {
    const AttributeProto::AttributeType type = TypeOf(proto);
    PF_RETURN_IF_ERROR(TakeValue(proto, graph, context, attribute));
    if (std::holds_alternative<OpaqueAttribute>(attribute.value)) return attribute;
    ClearValue(type, proto);
  }
  attribute.doc_string = proto.doc_string();
  proto.clear_name();
  proto.clear_type();
  proto.clear_doc_string();
  attribute.unknown_fields = proto.SerializePartialAsString();
  return attribute;
}

}  // namespace pagefuse
