// SPDX-License-Identifier: Apache-2.0
// What import and export share: libonnx's messages, and access to fields that are newer than these.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <google/protobuf/message.h>
#include <onnx/onnx_pb.h>

#include "pagefuse/base/status_place.h"
#include "pagefuse/ir/graph/graph.h"

namespace pagefuse {

// Numbers of fields that came after the messages of libonnx 1.12 (onnx.proto3 of ONNX 1.16 and
// later).
namespace field {
inline constexpr int kValueInfoMetadata = 4;
inline constexpr int kNodeOverload = 8;
inline constexpr int kNodeMetadata = 9;
inline constexpr int kGraphMetadata = 16;
inline constexpr int kFunctionAttributeProto = 11;
inline constexpr int kFunctionValueInfo = 12;
inline constexpr int kFunctionOverload = 13;
inline constexpr int kFunctionMetadata = 14;
}  // namespace field

// Nesting of messages that `max_depth` nested graphs need; protobuf recurses for each.
int MessageDepth(int max_depth);

// Nesting of messages that are kept as bytes. They were nested in a message that import took, so
// this bounds only what is not from there.
inline constexpr int kKeptMessageDepth = 1024;

// Parses `bytes`, refusing messages nested deeper than `message_depth`.
absl::Status ParseProto(std::string_view bytes, int message_depth,
                        google::protobuf::Message& message);

// As ParseProto, adding to what `message` holds.
absl::Status MergeProto(std::string_view bytes, int message_depth,
                        google::protobuf::Message& message);

// Removes the unknown length-delimited fields of that number and returns their contents.
std::vector<std::string> TakeUnknown(google::protobuf::Message& message, int number);
// As TakeUnknown for StringStringEntryProto entries.
absl::StatusOr<Metadata> TakeUnknownMetadata(google::protobuf::Message& message, int number);
// The last string of that number; empty if there is none.
std::string TakeUnknownString(google::protobuf::Message& message, int number);

// Adds an unknown length-delimited field.
void AddUnknown(google::protobuf::Message& message, int number, const std::string& content);
void AddUnknownMetadata(google::protobuf::Message& message, int number, const Metadata& metadata);

Metadata ImportMetadata(
    const google::protobuf::RepeatedPtrField<onnx::StringStringEntryProto>& entries);
void ExportMetadata(const Metadata& metadata,
                    google::protobuf::RepeatedPtrField<onnx::StringStringEntryProto>* entries);

}  // namespace pagefuse
