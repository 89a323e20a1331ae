#include "pagefuse/ir/text_attribute_types.h"

#include <array>

#include "onnx/onnx_pb.h"

namespace pagefuse {
namespace {

using onnx::AttributeProto;

// Item types and their lists; the names in the text syntax.
struct Row {
  int item;
  std::string_view item_name;
  int list;
  std::string_view list_name;
};
constexpr std::array<Row, 7> kRows = {{
    {AttributeProto::FLOAT, "float", AttributeProto::FLOATS, "floats"},
    {AttributeProto::INT, "int", AttributeProto::INTS, "ints"},
    {AttributeProto::STRING, "string", AttributeProto::STRINGS, "strings"},
    {AttributeProto::TENSOR, "tensor", AttributeProto::TENSORS, "tensors"},
    {AttributeProto::GRAPH, "graph", AttributeProto::GRAPHS, "graphs"},
    {AttributeProto::SPARSE_TENSOR, "sparse_tensor", AttributeProto::SPARSE_TENSORS,
     "sparse_tensors"},
    {AttributeProto::TYPE_PROTO, "type_proto", AttributeProto::TYPE_PROTOS, "type_protos"},
}};

struct TypeOf {
  int operator()(float) const { return AttributeProto::FLOAT; }
  int operator()(int64_t) const { return AttributeProto::INT; }
  int operator()(const std::string&) const { return AttributeProto::STRING; }
  int operator()(const Tensor&) const { return AttributeProto::TENSOR; }
  int operator()(const std::shared_ptr<Graph>&) const { return AttributeProto::GRAPH; }
  int operator()(const std::vector<float>&) const { return AttributeProto::FLOATS; }
  int operator()(const std::vector<int64_t>&) const { return AttributeProto::INTS; }
  int operator()(const std::vector<std::string>&) const { return AttributeProto::STRINGS; }
  int operator()(const std::vector<Tensor>&) const { return AttributeProto::TENSORS; }
  int operator()(const Attribute::Graphs&) const { return AttributeProto::GRAPHS; }
  int operator()(const AttributeRef& reference) const { return reference.onnx_type; }
  int operator()(const OpaqueAttribute& opaque) const {
    AttributeProto proto;
    return proto.ParseFromString(opaque.proto) ? proto.type() : 0;
  }
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
