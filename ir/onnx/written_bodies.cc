// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ir/onnx/written_bodies.h"

#include <algorithm>
#include <optional>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

#include "pagefuse/base/data_type.h"
#include "pagefuse/ir/graph/body_domains.h"

namespace pagefuse {
namespace {

using google::protobuf::RepeatedPtrField;

// The domain whose op a call in `domain` means; nullopt where it means what it says.
std::optional<std::string> RestoredDomain(const std::string& domain) {
  if (IsBodyDomain(domain, kNewerOpsDomain)) return "";
  if (IsBodyDomain(domain, kFusedDomain)) return std::string(kFusedDomain);
  return std::nullopt;
}

void RestoreNodes(RepeatedPtrField<onnx::NodeProto>& nodes) {
  for (onnx::NodeProto& node : nodes) {
    if (const auto domain = RestoredDomain(node.domain())) node.set_domain(*domain);
    for (onnx::AttributeProto& attribute : *node.mutable_attribute()) {
      if (attribute.has_g()) RestoreNodes(*attribute.mutable_g()->mutable_node());
      for (onnx::GraphProto& graph : *attribute.mutable_graphs()) {
        RestoreNodes(*graph.mutable_node());
      }
    }
  }
}

template <typename Message, typename Predicate>
void EraseIf(RepeatedPtrField<Message>& messages, const Predicate& predicate) {
  messages.erase(std::remove_if(messages.begin(), messages.end(), predicate), messages.end());
}

void RestoreImports(onnx::ModelProto& model, int64_t opset) {
  EraseIf(*model.mutable_opset_import(), [](const onnx::OperatorSetIdProto& import) {
    return import.domain() != kFusedDomain && RestoredDomain(import.domain()).has_value();
  });
  for (onnx::OperatorSetIdProto& import : *model.mutable_opset_import()) {
    // 0: the graph had none of its own.
    if (opset > 0 && (import.domain().empty() || import.domain() == "ai.onnx")) {
      import.set_version(opset);
    }
  }
}

// The entry of that key, which goes; nullopt if there is none.
std::optional<std::string> TakeMetadata(onnx::ModelProto& model, std::string_view key) {
  auto& metadata = *model.mutable_metadata_props();
  const auto entry = std::ranges::find_if(
      metadata, [key](const onnx::StringStringEntryProto& each) { return each.key() == key; });
  if (entry == metadata.end()) return std::nullopt;
  std::string value = entry->value();
  metadata.erase(entry);
  return value;
}

void RestoreFloat8(onnx::ModelProto& model, const std::string& names) {
  const absl::flat_hash_set<std::string> float8 = absl::StrSplit(names, '\n');
  const auto restore = [&](RepeatedPtrField<onnx::ValueInfoProto>& values) {
    for (onnx::ValueInfoProto& value : values) {
      if (!float8.contains(value.name())) continue;
      value.mutable_type()->mutable_tensor_type()->set_elem_type(
          static_cast<int32_t>(DataType::kFloat8E4M3FN));
    }
  };
  restore(*model.mutable_graph()->mutable_output());
  restore(*model.mutable_graph()->mutable_value_info());
}

}  // namespace

void RestoreCalls(onnx::ModelProto& model) {
  const std::optional<std::string> from = TakeMetadata(model, kWrittenFromOpset);
  int64_t opset = 0;
  if (!from || !absl::SimpleAtoi(*from, &opset)) return;
  if (const auto names = TakeMetadata(model, kFloat8Values)) RestoreFloat8(model, *names);
  RestoreNodes(*model.mutable_graph()->mutable_node());
  EraseIf(*model.mutable_functions(), [](const onnx::FunctionProto& function) {
    return RestoredDomain(function.domain()).has_value();
  });
  for (onnx::FunctionProto& function : *model.mutable_functions()) {
    RestoreNodes(*function.mutable_node());
  }
  RestoreImports(model, opset);
}

}  // namespace pagefuse
