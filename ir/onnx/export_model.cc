// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/graph/absent_data.h"
#include "pagefuse/ir/graph/verify.h"
#include "pagefuse/ir/onnx/export_graph.h"
#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/ir/onnx/onnx_proto.h"

namespace pagefuse {
namespace {

using google::protobuf::RepeatedPtrField;

void ExportOpsets(const std::map<std::string, int64_t>& opsets,
                  RepeatedPtrField<onnx::OperatorSetIdProto>* protos) {
  for (const auto& [domain, version] : opsets) {
    onnx::OperatorSetIdProto* proto = protos->Add();
    proto->set_domain(domain);
    proto->set_version(version);
  }
}

// Functions have no initialisers: a Constant node computes what passes made one.
absl::Status ExportConstant(const Value& value, ExportContext& context, onnx::NodeProto* proto) {
  proto->set_op_type("Constant");
  proto->add_output(value.name());
  return ExportAttribute("value", Attribute{.value = *value.initializer()}, context,
                         proto->add_attribute());
}

absl::Status ExportFunction(const Function& function, ExportContext& context,
                            onnx::FunctionProto* proto) {
  PF_RETURN_IF_ERROR(MergeFields(function.unknown_fields, proto));
  proto->set_domain(function.domain);
  proto->set_name(function.name);
  if (!function.overload.empty()) AddUnknown(*proto, field::kFunctionOverload, function.overload);
  if (!function.doc_string.empty()) proto->set_doc_string(function.doc_string);
  AddUnknownMetadata(*proto, field::kFunctionMetadata, function.metadata);
  ExportOpsets(function.opset_imports, proto->mutable_opset_import());
  for (const std::string& name : function.attributes) proto->add_attribute(name);
  for (const auto& [name, attribute] : function.defaults) {
    onnx::AttributeProto entry;
    PF_RETURN_IF_ERROR(ExportAttribute(name, attribute, context, &entry));
    AddUnknown(*proto, field::kFunctionAttributeProto, entry.SerializePartialAsString());
  }
  const Graph& body = *function.body;
  for (const Value* value : body.inputs()) proto->add_input(value->name());
  for (const Value* value : body.outputs()) proto->add_output(value->name());
  for (const Value* value : body.initializers()) {
    if (!value->IsConstant()) continue;
    PF_RETURN_IF_ERROR(ExportConstant(*value, context, proto->add_node()));
  }
  for (const auto& node : body.nodes()) {
    PF_RETURN_IF_ERROR(ExportNode(*node, context, proto->add_node()));
  }
  for (const Value* value : body.values()) {
    // Function inputs and outputs have no other place for their types.
    const bool typed = value->dtype() != DataType::kUndefined || value->shape();
    if (!typed && !value->listed) continue;
    onnx::ValueInfoProto info;
    ExportValueInfo(*value, &info);
    AddUnknown(*proto, field::kFunctionValueInfo, info.SerializePartialAsString());
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ExportModel(const Model& model, ExportContext& context, onnx::ModelProto* proto) {
  PF_RETURN_IF_ERROR(Verify(model));
  PF_RETURN_IF_ERROR(CheckDataPresent(model));
  PF_RETURN_IF_ERROR(MergeFields(model.unknown_fields, proto));
  proto->set_ir_version(model.ir_version);
  ExportOpsets(model.opset_imports, proto->mutable_opset_import());
  if (!model.producer_name.empty()) proto->set_producer_name(model.producer_name);
  if (!model.producer_version.empty()) proto->set_producer_version(model.producer_version);
  if (!model.domain.empty()) proto->set_domain(model.domain);
  if (model.model_version != 0) proto->set_model_version(model.model_version);
  if (!model.doc_string.empty()) proto->set_doc_string(model.doc_string);
  ExportMetadata(model.metadata, proto->mutable_metadata_props());
  PF_RETURN_IF_ERROR(ExportGraph(*model.graph, context, proto->mutable_graph()));
  for (const Function& function : model.functions) {
    PF_RETURN_IF_ERROR(ExportFunction(function, context, proto->add_functions()));
  }
  if (proto->ByteSizeLong() <= static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(
      StrCat("expected a model under 2 GiB, got ", proto->ByteSizeLong(), " bytes"));
}

absl::StatusOr<std::string> ExportModel(const Model& model) {
  ExportContext context;
  onnx::ModelProto proto;
  PF_RETURN_IF_ERROR(ExportModel(model, context, &proto));
  return proto.SerializePartialAsString();
}

}  // namespace pagefuse
