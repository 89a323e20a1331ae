// SPDX-License-Identifier: Apache-2.0
#include "minimise.h"

#include <algorithm>
#include <vector>

#include <onnx/onnx_pb.h>

namespace pagefuse::fuzz {
namespace {

using google::protobuf::Message;
using Fails = std::function<bool(const std::string&)>;

// Tries to take `count` entries from `begin` on out of a repeated field.
bool TryErase(onnx::ModelProto& model, Message& message,
              const google::protobuf::FieldDescriptor& field, int begin, const Fails& fails,
              int count) {
  const auto* reflection = message.GetReflection();
  std::unique_ptr<Message> before(message.New());
  before->CopyFrom(message);
  const int size = reflection->FieldSize(message, &field);
  for (int i = begin; i + count < size; ++i)
    reflection->SwapElements(&message, &field, i, i + count);
  for (int i = 0; i < count; ++i) reflection->RemoveLast(&message, &field);
  if (fails(model.SerializeAsString())) return true;
  message.CopyFrom(*before);
  return false;
}

bool ShrinkRepeated(onnx::ModelProto& model, Message& message,
                    const google::protobuf::FieldDescriptor& field, const Fails& fails) {
  const auto* reflection = message.GetReflection();
  bool shrunk = false;
  for (int count = std::max(reflection->FieldSize(message, &field) / 2, 1); count > 0; count /= 2) {
    for (int end = reflection->FieldSize(message, &field); end >= count;) {
      if (TryErase(model, message, field, end - count, fails, count)) shrunk = true;
      end -= count;
    }
  }
  return shrunk;
}

// One round over the message and what is in it. Copies in TryErase make new children: they are
// visited after the lists of their parent are done.
bool Shrink(onnx::ModelProto& model, Message& message, const Fails& fails) {
  const auto* reflection = message.GetReflection();
  bool shrunk = false;
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  reflection->ListFields(message, &fields);
  for (const auto* field : fields) {
    if (field->is_repeated()) {
      shrunk = ShrinkRepeated(model, message, *field, fails) || shrunk;
      continue;
    }
    std::unique_ptr<Message> before(message.New());
    before->CopyFrom(message);
    reflection->ClearField(&message, field);
    if (fails(model.SerializeAsString())) {
      shrunk = true;
    } else {
      message.CopyFrom(*before);
    }
  }
  reflection->ListFields(message, &fields);
  for (const auto* field : fields) {
    if (field->cpp_type() != google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE) continue;
    if (!field->is_repeated()) {
      shrunk = Shrink(model, *reflection->MutableMessage(&message, field), fails) || shrunk;
      continue;
    }
    for (int i = 0; i < reflection->FieldSize(message, field); ++i) {
      Message& entry = *reflection->MutableRepeatedMessage(&message, field, i);
      shrunk = Shrink(model, entry, fails) || shrunk;
    }
  }
  return shrunk;
}

}  // namespace

std::string Minimise(std::string bytes, const Fails& fails) {
  onnx::ModelProto model;
  if (!model.ParseFromString(bytes) || !fails(model.SerializeAsString())) return bytes;
  while (Shrink(model, model, fails)) {
  }
  return model.SerializeAsString();
}

}  // namespace pagefuse::fuzz
