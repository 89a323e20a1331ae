// SPDX-License-Identifier: Apache-2.0
// The inner functions of the importer, for graphs, nodes and attributes. All of them take the
// fields they understand out of the message, and keep the serialised rest as unknown_fields.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <onnx/onnx_pb.h>

#include "pagefuse/ir/graph/graph.h"
#include "pagefuse/ir/onnx/external_data.h"

namespace pagefuse {

struct ImportContext {
  ExternalData* external;
  int max_depth;
  int depth = 0;  // of the graph being imported
};

// A graph under `parent` (null at the top); nodes in file order.
absl::StatusOr<std::unique_ptr<Graph>> ImportGraph(onnx::GraphProto& proto, Graph* parent,
                                                   const ImportContext& context);

// Nodes and types of inner values, for graphs and function bodies whose inputs and initialisers are
// there. Entries of value_info that name no value stay in the list.
absl::Status ImportBody(google::protobuf::RepeatedPtrField<onnx::NodeProto>& nodes,
                        google::protobuf::RepeatedPtrField<onnx::ValueInfoProto>& value_info,
                        const ImportContext& context, Graph& graph);

// One more output, of that name. InvalidArgument if the graph does not define it.
absl::StatusOr<Value*> ImportOutput(const std::string& name, Graph& graph);

// Subgraphs go under `graph`, the graph of the node (null for defaults of functions).
absl::StatusOr<Attribute> ImportAttribute(onnx::AttributeProto& proto, Graph* graph,
                                          const ImportContext& context);

}  // namespace pagefuse
