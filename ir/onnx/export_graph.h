// SPDX-License-Identifier: Apache-2.0
// The inner functions of the exporter, which mirror import_graph.h.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include <onnx/onnx_pb.h>

#include "pagefuse/ir/graph/model.h"

namespace pagefuse {

// Where tensors go: into the messages, or from `threshold` bytes on into a data file.
struct ExportContext {
  struct Piece {
    Tensor tensor;
    int64_t offset;
  };

  // Empty: everything stays inside.
  std::string location;
  int64_t threshold = 0;

  int64_t inside_bytes = 0;   // so far
  int64_t data_bytes = 0;     // of the data file, so far
  std::vector<Piece> pieces;  // of the data file, by offset
  // Tensors that share memory are written once: start and size -> offset.
  std::map<std::pair<const void*, int64_t>, int64_t> offsets;
};

// Tensors in the data file start at multiples of this, so that they can be mapped.
inline constexpr int64_t kDataAlignment = 4096;

// The messages are filled in place. ResourceExhausted if what goes inside is over protobuf's 2 GiB.
absl::Status ExportModel(const Model& model, ExportContext& context, onnx::ModelProto* proto);
absl::Status ExportGraph(const Graph& graph, ExportContext& context, onnx::GraphProto* proto);
absl::Status ExportNode(const Node& node, ExportContext& context, onnx::NodeProto* proto);
absl::Status ExportAttribute(const std::string& name, const Attribute& attribute,
                             ExportContext& context, onnx::AttributeProto* proto);
void ExportValueInfo(const Value& value, onnx::ValueInfoProto* proto);
// `fields`: the rest of the serialised TensorProto. `may_be_external`: the data file may take it.
absl::Status ExportTensor(const Tensor& tensor, const std::string& fields, bool may_be_external,
                          ExportContext& context, onnx::TensorProto* proto);
// Adds serialised fields that import did not understand.
absl::Status MergeFields(const std::string& fields, google::protobuf::Message* message);

}  // namespace pagefuse
