// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/graph/verify.h"
#include "pagefuse/ir/onnx/import_graph.h"
#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/ir/onnx/onnx_proto.h"
#include "pagefuse/ir/onnx/written_bodies.h"

namespace pagefuse {
namespace {

using google::protobuf::RepeatedPtrField;

// IR version 3 brought opset imports; the versions this importer knows end at 14.
constexpr int64_t kMinIrVersion = 3;
constexpr int64_t kMaxIrVersion = 14;

absl::StatusOr<std::map<std::string, int64_t>> ImportOpsets(
    const RepeatedPtrField<onnx::OperatorSetIdProto>& protos) {
  std::map<std::string, int64_t> opsets;
  for (const onnx::OperatorSetIdProto& proto : protos) {
    const auto [entry, is_new] = opsets.emplace(proto.domain(), proto.version());
    if (!is_new && entry->second != proto.version()) {
      return absl::InvalidArgumentError(StrCat("domain \"", proto.domain(),
                                               "\" is imported in versions ", entry->second,
                                               " and ", proto.version()));
    }
  }
  return opsets;
}

absl::Status ImportDefaults(onnx::FunctionProto& proto, const ImportContext& context,
                            Function& function) {
  for (const std::string& bytes : TakeUnknown(proto, field::kFunctionAttributeProto)) {
    onnx::AttributeProto attribute;
    PF_RETURN_IF_ERROR(ParseProto(bytes, MessageDepth(context.max_depth), attribute));
    std::string name = attribute.name();
    absl::StatusOr<Attribute> value = ImportAttribute(attribute, nullptr, context);
    PF_RETURN_IF_ERROR(AtPlace(StrCat("attribute \"", name, "\""), value.status()));
    if (const auto* graph = std::get_if<std::shared_ptr<Graph>>(&value->value)) {
      PF_RETURN_IF_ERROR((*graph)->SortTopologically());
    } else if (const auto* graphs = std::get_if<Attribute::Graphs>(&value->value)) {
      for (const auto& entry : *graphs) PF_RETURN_IF_ERROR(entry->SortTopologically());
    }
    function.defaults.emplace_back(std::move(name), *std::move(value));
  }
  return absl::OkStatus();
}

absl::Status ImportFunctionBody(onnx::FunctionProto& proto, const ImportContext& context,
                                Graph& body) {
  body.name = proto.name();
  for (const std::string& name : proto.input()) {
    if (name.empty()) return absl::InvalidArgumentError("an input has no name");
    if (body.FindValue(name) != nullptr) {
      return absl::InvalidArgumentError(StrCat("input \"", name, "\" is listed twice"));
    }
    body.AddInput(name, DataType::kUndefined, std::nullopt);
  }
  RepeatedPtrField<onnx::ValueInfoProto> infos;
  for (const std::string& bytes : TakeUnknown(proto, field::kFunctionValueInfo)) {
    PF_RETURN_IF_ERROR(ParseProto(bytes, MessageDepth(context.max_depth), *infos.Add()));
  }
  PF_RETURN_IF_ERROR(ImportBody(*proto.mutable_node(), infos, context, body));
  for (const onnx::ValueInfoProto& info : infos) {  // of no value
    AddUnknown(proto, field::kFunctionValueInfo, info.SerializePartialAsString());
  }
  for (const std::string& name : proto.output()) {
    PF_RETURN_IF_ERROR(ImportOutput(name, body).status());
  }
  return body.SortTopologically();
}

absl::Status ImportFunctionFields(onnx::FunctionProto& proto, const ImportContext& context,
                                  Function& function) {
  PF_ASSIGN_OR_RETURN(function.opset_imports, ImportOpsets(proto.opset_import()));
  PF_RETURN_IF_ERROR(ImportDefaults(proto, context, function));
  PF_ASSIGN_OR_RETURN(function.metadata, TakeUnknownMetadata(proto, field::kFunctionMetadata));
  function.body = std::make_shared<Graph>();
  PF_RETURN_IF_ERROR(ImportFunctionBody(proto, context, *function.body));
  function.attributes = {proto.attribute().begin(), proto.attribute().end()};
  function.doc_string = proto.doc_string();
  proto.clear_name();
  proto.clear_input();
  proto.clear_output();
  proto.clear_attribute();
  proto.clear_doc_string();
  proto.clear_opset_import();
  proto.clear_domain();
  function.unknown_fields = proto.SerializePartialAsString();
  return absl::OkStatus();
}

absl::StatusOr<Function> ImportFunction(onnx::FunctionProto& proto, const ImportContext& context) {
  Function function;
  function.domain = proto.domain();
  function.name = proto.name();
  function.overload = TakeUnknownString(proto, field::kFunctionOverload);
  const std::string place = StrCat("function \"", function.domain, ".", function.name, "\"");
  PF_RETURN_IF_ERROR(AtPlace(place, ImportFunctionFields(proto, context, function)));
  return function;
}

void TakeModelFields(onnx::ModelProto& proto, Model& model) {
  model.producer_name = proto.producer_name();
  model.producer_version = proto.producer_version();
  model.domain = proto.domain();
  model.model_version = proto.model_version();
  model.doc_string = proto.doc_string();
  model.metadata = ImportMetadata(proto.metadata_props());
  proto.clear_ir_version();
  proto.clear_opset_import();
  proto.clear_producer_name();
  proto.clear_producer_version();
  proto.clear_domain();
  proto.clear_model_version();
  proto.clear_doc_string();
  proto.clear_metadata_props();
  proto.clear_graph();
  proto.clear_functions();
  model.unknown_fields = proto.SerializePartialAsString();
}

}  // namespace

absl::StatusOr<Model> ImportModel(std::string_view bytes, const ImportOptions& options) {
  onnx::ModelProto proto;
  PF_RETURN_IF_ERROR(ParseProto(bytes, MessageDepth(options.max_depth), proto));
  if (!proto.has_graph()) return absl::InvalidArgumentError("the model has no graph");
  RestoreCalls(proto);
  Model model;
  model.ir_version = proto.ir_version();
  if (model.ir_version < kMinIrVersion || model.ir_version > kMaxIrVersion) {
    return absl::InvalidArgumentError(StrCat("expected IR version ", kMinIrVersion, " to ",
                                             kMaxIrVersion, ", got ", model.ir_version));
  }
  PF_ASSIGN_OR_RETURN(model.opset_imports, ImportOpsets(proto.opset_import()));
  ExternalData external({.base_dir = options.base_dir,
                         .map_files = options.map_files,
                         .allow_missing = options.allow_missing_data});
  const ImportContext context = {.external = &external, .max_depth = options.max_depth};
  PF_ASSIGN_OR_RETURN(model.graph, ImportGraph(*proto.mutable_graph(), nullptr, context));
  PF_RETURN_IF_ERROR(model.graph->SortTopologically());
  for (onnx::FunctionProto& function : *proto.mutable_functions()) {
    PF_ASSIGN_OR_RETURN(Function imported, ImportFunction(function, context));
    model.functions.push_back(std::move(imported));
  }
  TakeModelFields(proto, model);
  PF_RETURN_IF_ERROR(Verify(model));
  return model;
}

}  // namespace pagefuse
