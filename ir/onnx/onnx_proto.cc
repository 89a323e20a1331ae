// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ir/onnx/onnx_proto.h"

#include <limits>

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/unknown_field_set.h>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"

namespace pagefuse {
namespace {

using google::protobuf::Message;
using google::protobuf::UnknownField;
using google::protobuf::UnknownFieldSet;

UnknownFieldSet& UnknownFields(Message& message) {
  return *message.GetReflection()->MutableUnknownFields(&message);
}

}  // namespace

// A nested graph takes three messages: node, attribute, graph. The rest is for what hangs below the
// innermost node.
int MessageDepth(int max_depth) { return 3 * max_depth + 32; }

absl::Status ParseProto(std::string_view bytes, int message_depth, Message& message) {
  message.Clear();
  return MergeProto(bytes, message_depth, message);
}

absl::Status MergeProto(std::string_view bytes, int message_depth, Message& message) {
  if (bytes.size() > static_cast<size_t>(std::numeric_limits<int>::max())) {
    return absl::InvalidArgumentError(
        StrCat("expected a protobuf message under 2 GiB, got ", bytes.size(), " bytes"));
  }
  google::protobuf::io::CodedInputStream stream(reinterpret_cast<const uint8_t*>(bytes.data()),
                                                static_cast<int>(bytes.size()));
  stream.SetRecursionLimit(message_depth);
  if (!message.MergePartialFromCodedStream(&stream) || !stream.ConsumedEntireMessage()) {
    return absl::InvalidArgumentError(
        StrCat("expected a serialised ", message.GetDescriptor()->name(),
               ", got bytes that are cut off, damaged, or nested too deeply"));
  }
  return absl::OkStatus();
}

std::vector<std::string> TakeUnknown(Message& message, int number) {
  UnknownFieldSet& fields = UnknownFields(message);
  std::vector<std::string> contents;
  for (int i = 0; i < fields.field_count(); ++i) {
    const UnknownField& field = fields.field(i);
    if (field.number() == number && field.type() == UnknownField::TYPE_LENGTH_DELIMITED) {
      contents.push_back(field.length_delimited());
    }
  }
  if (!contents.empty()) fields.DeleteByNumber(number);
  return contents;
}

absl::StatusOr<Metadata> TakeUnknownMetadata(Message& message, int number) {
  Metadata metadata;
  for (const std::string& content : TakeUnknown(message, number)) {
    onnx::StringStringEntryProto entry;
    PF_RETURN_IF_ERROR(AtPlace("metadata_props", ParseProto(content, MessageDepth(0), entry)));
    metadata.emplace_back(entry.key(), entry.value());
  }
  return metadata;
}

std::string TakeUnknownString(Message& message, int number) {
  std::vector<std::string> contents = TakeUnknown(message, number);
  return contents.empty() ? "" : contents.back();
}

void AddUnknown(Message& message, int number, const std::string& content) {
  UnknownFields(message).AddLengthDelimited(number, content);
}

void AddUnknownMetadata(Message& message, int number, const Metadata& metadata) {
  for (const auto& [key, value] : metadata) {
    onnx::StringStringEntryProto entry;
    entry.set_key(key);
    entry.set_value(value);
    AddUnknown(message, number, entry.SerializeAsString());
  }
}

Metadata ImportMetadata(
    const google::protobuf::RepeatedPtrField<onnx::StringStringEntryProto>& entries) {
  Metadata metadata;
  for (const auto& entry : entries) metadata.emplace_back(entry.key(), entry.value());
  return metadata;
}

void ExportMetadata(const Metadata& metadata,
                    google::protobuf::RepeatedPtrField<onnx::StringStringEntryProto>* entries) {
  for (const auto& [key, value] : metadata) {
    onnx::StringStringEntryProto* entry = entries->Add();
    entry->set_key(key);
    entry->set_value(value);
  }
}

}  // namespace pagefuse
