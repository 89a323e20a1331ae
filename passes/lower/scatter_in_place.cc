// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/edit/graph_builder.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/op_types.h"
#include "pagefuse/passes/lower/body_rewrites.h"

namespace pagefuse {
namespace {

// True for Shape (x) of all axes.
bool IsShapeOf(const Value* value, const Value* x) {
  const Node* shape = ProducerIf(value, "Shape");
  return shape != nullptr && shape->input(0) == x && shape->attributes().empty();
}

// True for Concat ([-1], Shape <start = 2> (x)).
bool IsBySlot(const Value* value, const Value* x) {
  const Node* sizes = ProducerIf(value, "Concat");
  if (sizes == nullptr || sizes->num_inputs() != 2) return false;
  const Node* tail = ProducerIf(sizes->input(1), "Shape");
  const Node* minus_one = ProducerIf(sizes->input(0), "Constant");
  const Attribute* list = minus_one == nullptr ? nullptr : minus_one->attribute("value_ints");
  const auto* ints = list == nullptr ? nullptr : std::get_if<std::vector<int64_t>>(&list->value);
  return ints != nullptr && *ints == std::vector<int64_t>{-1} && tail != nullptr &&
         tail->input(0) == x && IntOr(*tail, "start", 0) == 2 && tail->attribute("end") == nullptr;
}

// The cache that the node shapes back to after a scatter; null if it is no such node.
Value* ScatteredCache(const Node& node) {
  if (!node.Is("Reshape")) return nullptr;
  const Node* scatter = ProducerIf(node.input(0), "ScatterND");
  if (scatter == nullptr || scatter->output(0)->uses().size() != 1 ||
      scatter->attribute("reduction") != nullptr) {
    return nullptr;
  }
  const Node* flat = ProducerIf(scatter->input(0), "Reshape");
  if (flat == nullptr || !IsBySlot(flat->input(1), flat->input(0))) return nullptr;
  Value* cache = flat->input(0);
  return IsShapeOf(node.input(1), cache) ? cache : nullptr;
}

void Rewrite(Graph& body, Node* node, Value* cache) {
  Node* scatter = node->input(0)->producer();
  GraphBuilder builder(body, node, "in_place");
  Value* slots = scatter->input(1);
  Value* sizes = builder.Add("Shape", {cache});
  Value* block_size = builder.Add("Slice", {sizes, builder.Ints({1}), builder.Ints({2})});
  Value* block = builder.Add("Div", {slots, block_size});
  Value* offset = builder.Add("Mod", {slots, block_size});
  Value* place = builder.Add("Concat", {block, offset}, {{"axis", -1}});
  Value* written = builder.Add("ScatterND", {cache, place, scatter->input(2)});
  written->set_dtype(node->output(0)->dtype());
  ReplaceNode(node, written);
}

}  // namespace

void ScatterInPlace(Graph& body) {
  for (Node* node : NodesOf(body)) {
    if (Value* cache = ScatteredCache(*node)) Rewrite(body, node, cache);
  }
}

}  // namespace pagefuse
