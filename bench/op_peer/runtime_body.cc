// SPDX-License-Identifier: Apache-2.0
#include "runtime_body.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "pagefuse/base/status_macros.h"

namespace pagefuse {
namespace {

Attribute TypeAttribute(DataType type) { return Attribute{static_cast<int64_t>(type), "", ""}; }

// The type that a conversion gives; undefined for other nodes.
DataType TargetType(const Node* node) {
  if (node == nullptr) return DataType::kUndefined;
  const bool quantises = node->Is("QuantizeLinear");
  if (!quantises && !node->Is("Cast") && !node->Is("BitCast")) return DataType::kUndefined;
  const absl::StatusOr<int64_t> to = node->IntAttribute(quantises ? "output_dtype" : "to", 0);
  PF_CHECK(to.ok());
  return static_cast<DataType>(*to);
}

// The type of a value, found at the conversion that its elements come from; undefined if they come
// from an input.
DataType ElementType(const Value* value) {
  const Node* node = value->producer();
  while (node != nullptr && TargetType(node) == DataType::kUndefined) {
    // Of the other ops that bits go through, Where alone has them not first.
    const Value* source = node->input(node->Is("Where") ? 1 : 0);
    node = source == nullptr ? nullptr : source->producer();
  }
  return TargetType(node);
}

void AdaptConversion(Node& node) {
  const char* name = node.Is("QuantizeLinear") ? "output_dtype" : "to";
  const DataType target = TargetType(&node);
  if (target == DataType::kUndefined || RuntimeType(target) == target) return;
  node.SetAttribute(name, TypeAttribute(RuntimeType(target)));
  node.RemoveAttribute("saturate");
}

void AdaptConstant(Node& node) {
  const Attribute* value = node.attribute("value");
  if (value == nullptr) return;
  const auto* tensor = std::get_if<Tensor>(&value->value);
  if (tensor == nullptr || RuntimeType(tensor->dtype()) == tensor->dtype()) return;
  absl::StatusOr<Tensor> codes = Tensor::View(RuntimeType(tensor->dtype()), tensor->dims(),
                                              tensor->buffer(), tensor->buffer_offset());
  PF_CHECK(codes.ok());
  node.SetAttribute("value", Attribute{*std::move(codes), "", ""});
}

// How a node comes to a type that its op has a kernel for.
struct Detour {
  int first_input;         // from here on inputs are converted
  const char* conversion;  // Cast or BitCast
  DataType inside, outside;
};

Value* ConvertBefore(Graph& body, const char* conversion, Value* from, DataType type,
                     Node* before) {
  Value* to = body.AddValue(body.UniqueName(from->name() + "_converted"));
  body.AddNode("", conversion, {from}, {to}, before)->SetAttribute("to", TypeAttribute(type));
  return to;
}

// Replaces the node by one between conversions.
void TakeDetour(Graph& body, Node& node, const Detour& detour) {
  std::vector<Value*> inputs = node.inputs();
  for (size_t i = detour.first_input; i < inputs.size(); ++i) {
    inputs[i] = ConvertBefore(body, detour.conversion, inputs[i], detour.inside, &node);
  }
  Value* result = body.AddValue(body.UniqueName("converted"));
  Node* replacement = body.AddNode("", node.op_type(), inputs, {result}, &node);
  for (const auto& [name, attribute] : node.attributes()) {
    replacement->SetAttribute(name, attribute);
  }
  Value* back = ConvertBefore(body, detour.conversion, result, detour.outside, &node);
  body.ReplaceAllUses(node.output(0), back);
  body.EraseNode(&node);
}

constexpr Detour kShiftOfUint16 = {0, "Cast", DataType::kUint32, DataType::kUint16};
constexpr Detour kWhereOfBfloat16 = {1, "BitCast", DataType::kFloat16, DataType::kBfloat16};

}  // namespace

DataType RuntimeType(DataType type) { return IsFloat8(type) ? DataType::kUint8 : type; }

void AdaptToRuntime(Graph& body) {
  std::vector<Node*> nodes;
  for (const auto& node : body.nodes()) nodes.push_back(node.get());
  for (Node* node : nodes) {
    AdaptConversion(*node);
    if (node->Is("Constant")) AdaptConstant(*node);
    if (node->Is("BitShift") && ElementType(node->input(0)) == DataType::kUint16) {
      TakeDetour(body, *node, kShiftOfUint16);
    } else if (node->Is("Where") && ElementType(node->input(1)) == DataType::kBfloat16) {
      TakeDetour(body, *node, kWhereOfBfloat16);
    }
  }
}

}  // namespace pagefuse
