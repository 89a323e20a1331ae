// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/onnx/export_graph.h"
#include "pagefuse/ir/onnx/onnx_proto.h"

namespace pagefuse {
namespace {

void AddEntry(std::string_view key, std::string value, onnx::TensorProto* proto) {
  onnx::StringStringEntryProto* entry = proto->add_external_data();
  entry->set_key(std::string(key));
  entry->set_value(std::move(value));
}

// Gives the tensor a place in the data file.
void ExportOutside(const Tensor& tensor, ExportContext& context, onnx::TensorProto* proto) {
  const auto key = std::make_pair(tensor.data(), tensor.byte_size());
  const auto [known, is_new] = context.offsets.emplace(key, 0);
  if (is_new) {
    known->second = (context.data_bytes + kDataAlignment - 1) / kDataAlignment * kDataAlignment;
    context.data_bytes = known->second + tensor.byte_size();
    context.pieces.push_back({tensor, known->second});
  }
  proto->set_data_location(onnx::TensorProto::EXTERNAL);
  AddEntry("location", context.location, proto);
  AddEntry("offset", StrCat(known->second), proto);
  AddEntry("length", StrCat(tensor.byte_size()), proto);
}

absl::Status ExportInside(const Tensor& tensor, ExportContext& context, onnx::TensorProto* proto) {
  if (tensor.dtype() == DataType::kString) {
    for (const std::string& text : tensor.strings()) proto->add_string_data(text);
    return absl::OkStatus();
  }
  context.inside_bytes += tensor.byte_size();
  if (context.inside_bytes > std::numeric_limits<int32_t>::max()) {
    return absl::ResourceExhaustedError(
        "expected a model under 2 GiB, got more: save it with external data");
  }
  proto->set_raw_data(tensor.data(), tensor.byte_size());
  return absl::OkStatus();
}

}  // namespace

absl::Status MergeFields(const std::string& fields, google::protobuf::Message* message) {
  if (MergeProto(fields, kKeptMessageDepth, *message).ok()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat("the unknown fields kept for a ", message->GetDescriptor()->name(), " are damaged"));
}

absl::Status ExportTensor(const Tensor& tensor, const std::string& fields, bool may_be_external,
                          ExportContext& context, onnx::TensorProto* proto) {
  PF_RETURN_IF_ERROR(MergeFields(fields, proto));
  proto->set_data_type(static_cast<int32_t>(tensor.dtype()));
  proto->mutable_dims()->Add(tensor.dims().begin(), tensor.dims().end());
  const bool outside = may_be_external && !context.location.empty() && tensor.byte_size() > 0 &&
                       tensor.byte_size() >= context.threshold;
  if (!outside) return ExportInside(tensor, context, proto);
  ExportOutside(tensor, context, proto);
  return absl::OkStatus();
}

}  // namespace pagefuse
