// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/normalise/older_forms.h"

#include <algorithm>
#include <vector>

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/kernels/numeric/convert.h"
#include "pagefuse/ops/schema/moved_attributes.h"
#include "pagefuse/passes/edit/graph_builder.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/ports.h"

namespace pagefuse {
namespace {

using Moved = MovedAttribute;

// The node's attribute where it has to become an input.
const Attribute* FindMoved(const Node& node, const Moved& moved, int64_t opset) {
  if (!node.Is(moved.op_type) || opset >= moved.since) return nullptr;
  return node.attribute(moved.attribute);
}

// Null for kinds that no op has there.
Value* AsInput(Graph& graph, const Node& node, const Moved& moved, SymbolicContents& contents) {
  const Attribute& attribute = *node.attribute(moved.attribute);
  if (const auto* list = std::get_if<std::vector<int64_t>>(&attribute.value)) {
    return AddInts(graph, moved.attribute, *list, contents);
  }
  if (const auto* one = std::get_if<int64_t>(&attribute.value)) {
    return AddInts(graph, moved.attribute, {*one}, contents);
  }
  const auto* number = std::get_if<float>(&attribute.value);
  if (number == nullptr) return nullptr;
  auto scalar = Tensor::Allocate(node.input(0)->dtype(), {});
  if (!scalar.ok()) return nullptr;
  const auto encoded = EncodeFromFloat(scalar->dtype(), number, 1, scalar->mutable_data());
  return encoded.ok() ? AddConstant(graph, moved.attribute, *std::move(scalar), contents) : nullptr;
}

// Before opset 13 a row of Softmax is all axes from `axis` on, 1 by default.
bool HasFlatRows(const Node& node, int64_t opset) {
  return opset < 13 && (node.Is("Softmax") || node.Is("LogSoftmax") || node.Is("Hardmax"));
}

void RaiseFlatRows(Graph& graph, Node* node, SymbolicContents& contents) {
  const int64_t axis = IntOr(*node, "axis", 1);
  Value* x = node->input(0);
  const auto& shape = x->shape();
  if (axis == -1 || (shape && axis == shape->rank() - 1)) {
    node->SetAttribute("axis", MakeAttribute(int64_t{-1}));
    return;
  }
  GraphBuilder builder(graph, node, "rows");
  Value* sizes = builder.Add("Shape", {x});
  Value* rows = builder.Add("Flatten", {x}, {{"axis", axis}});
  Value* y = builder.Add(node->op_type(), {rows}, {{"axis", -1}});
  y->producer()->name = node->name;
  ReplaceValue(graph, node->output(0), builder.Add("Reshape", {y, sizes}));
  EraseDead(node, contents);
}

}  // namespace

bool MeansTheSame(const Node& node, int64_t from, int64_t to) {
  if (HasFlatRows(node, from) != HasFlatRows(node, to)) return false;
  return std::ranges::none_of(MovedAttributes(), [&](const Moved& moved) {
    return FindMoved(node, moved, from) != nullptr && to >= moved.since;
  });
}

std::optional<std::string> ObstacleInForm(const Node& node, int64_t opset) {
  using ports::Dropout;
  if (node.Is("Dropout") && opset < 10 && node.output(Dropout::kMask) != nullptr) {
    return StrCat(node.Description(), ": its mask has another type from opset 10 on");
  }
  for (const Moved& moved : MovedAttributes()) {
    const Attribute* attribute = FindMoved(node, moved, opset);
    if (attribute == nullptr || !std::holds_alternative<float>(attribute->value)) continue;
    const Value* data = node.input(0);
    if (data != nullptr && IsFloatingPoint(data->dtype())) continue;
    return StrCat(node.Description(), ": attribute \"", moved.attribute,
                  "\": expected data of a known float type to make it an input");
  }
  return std::nullopt;
}

void RaiseForm(Graph& graph, Node* node, int64_t opset, SymbolicContents& contents) {
  for (const Moved& moved : MovedAttributes()) {
    if (FindMoved(*node, moved, opset) == nullptr) continue;
    Value* input = AsInput(graph, *node, moved, contents);
    if (input == nullptr) continue;
    node->RemoveAttribute(moved.attribute);
    node->SetInput(moved.input, input);
  }
  // Without sizes, Split has to say how many parts from opset 18 on.
  if (node->Is("Split") && opset < 18 && node->input(1) == nullptr &&
      node->attribute("num_outputs") == nullptr) {
    node->SetAttribute("num_outputs", MakeAttribute(static_cast<int64_t>(node->num_outputs())));
  }
  if (HasFlatRows(*node, opset)) RaiseFlatRows(graph, node, contents);
}

}  // namespace pagefuse
