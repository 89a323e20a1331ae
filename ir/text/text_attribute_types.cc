// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ir/text/text_attribute_types.h"

#include <array>
#include <cstdint>
#include <optional>

namespace pagefuse {
namespace {

// Item types and their lists; the names in the text syntax.
struct Row {
  int item;
  std::string_view item_name;
  int list;
  std::string_view list_name;
};
constexpr std::array<Row, 7> kRows = {{
    {kFloatAttribute, "float", kFloatsAttribute, "floats"},
    {kIntAttribute, "int", kIntsAttribute, "ints"},
    {kStringAttribute, "string", kStringsAttribute, "strings"},
    {kTensorAttribute, "tensor", kTensorsAttribute, "tensors"},
    {kGraphAttribute, "graph", kGraphsAttribute, "graphs"},
    {kSparseTensorAttribute, "sparse_tensor", kSparseTensorsAttribute, "sparse_tensors"},
    {kTypeProtoAttribute, "type_proto", kTypeProtosAttribute, "type_protos"},
}};

// Takes a number of a protobuf message from the front of the bytes.
std::optional<uint64_t> TakeVarint(std::string_view& bytes) {
  constexpr int kBits = 7;
  uint64_t value = 0;
  for (int shift = 0; shift < 64 && !bytes.empty(); shift += kBits) {
    const auto byte = static_cast<uint8_t>(bytes.front());
    bytes.remove_prefix(1);
    value |= static_cast<uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

// The field `type` of an AttributeProto; 0 if it has none, or the bytes are no message.
int TypeInMessage(std::string_view bytes) {
  constexpr uint64_t kTypeField = 20;
  enum : uint64_t { kVarint = 0, kEightBytes = 1, kLength = 2, kFourBytes = 5 };
  int type = 0;
  while (!bytes.empty()) {
    const std::optional<uint64_t> tag = TakeVarint(bytes);
    if (!tag) return 0;
    uint64_t skipped = 0;
    switch (*tag & 7) {
      case kVarint:
      case kLength: {
        const std::optional<uint64_t> number = TakeVarint(bytes);
        if (!number) return 0;
        if ((*tag & 7) == kLength) skipped = *number;
        if (*tag >> 3 == kTypeField) type = static_cast<int>(*number);
        break;
      }
      case kEightBytes:
        skipped = 8;
        break;
      case kFourBytes:
        skipped = 4;
        break;
      default:
        return 0;
    }
    if (skipped > bytes.size()) return 0;
    bytes.remove_prefix(skipped);
  }
  return type;
}

struct TypeOf {
  int operator()(float) const { return kFloatAttribute; }
  int operator()(int64_t) const { return kIntAttribute; }
  int operator()(const std::string&) const { return kStringAttribute; }
  int operator()(const Tensor&) const { return kTensorAttribute; }
  int operator()(const std::shared_ptr<Graph>&) const { return kGraphAttribute; }
  int operator()(const std::vector<float>&) const { return kFloatsAttribute; }
  int operator()(const std::vector<int64_t>&) const { return kIntsAttribute; }
  int operator()(const std::vector<std::string>&) const { return kStringsAttribute; }
  int operator()(const std::vector<Tensor>&) const { return kTensorsAttribute; }
  int operator()(const Attribute::Graphs&) const { return kGraphsAttribute; }
  int operator()(const AttributeRef& reference) const { return reference.onnx_type; }
  int operator()(const OpaqueAttribute& opaque) const { return TypeInMessage(opaque.proto); }
};

}  // namespace

std::string_view AttributeTypeName(int type) {
  for (const Row& row : kRows) {
    if (row.item == type) return row.item_name;
    if (row.list == type) return row.list_name;
  }
  return "undefined";
}

int AttributeTypeFromName(std::string_view name) {
  for (const Row& row : kRows) {
    if (row.item_name == name) return row.item;
    if (row.list_name == name) return row.list;
  }
  return 0;
}

bool IsListType(int type) { return ItemType(type) != 0; }

int ListType(int item_type) {
  for (const Row& row : kRows) {
    if (row.item == item_type) return row.list;
  }
  return 0;
}

int ItemType(int list_type) {
  for (const Row& row : kRows) {
    if (row.list == list_type) return row.item;
  }
  return 0;
}

int AttributeTypeOf(const Attribute& attribute) { return std::visit(TypeOf(), attribute.value); }

}  // namespace pagefuse
