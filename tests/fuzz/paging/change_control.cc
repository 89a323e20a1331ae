// SPDX-License-Identifier: Apache-2.0
// Nodes inside If and Loop.
#include <memory>

#include "change_parts.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/edit/graph_edit.h"

namespace pagefuse::fuzz {
namespace {

bool MayMove(const Node& node) {
  return node.num_outputs() == 1 && node.output(0) && node.Subgraphs().empty() &&
         node.num_inputs() > 0 && !node.output(0)->is_output();
}

// The node in a graph of its own, reading `inputs`; its output there.
Value* CopyInto(Graph& body, const Node& node, const std::vector<Value*>& inputs) {
  Value* output = body.AddValue(body.UniqueName("inside"), node.output(0)->dtype());
  Node* copy = body.AddNode(node.domain(), node.op_type(), inputs, {output});
  for (const auto& [name, attribute] : node.attributes()) copy->SetAttribute(name, attribute);
  return output;
}

Value* Then(Graph& body, std::string_view op, std::vector<Value*> inputs, DataType type) {
  Value* output = body.AddValue(body.UniqueName("then"), type);
  body.AddNode("", op, std::move(inputs), {output});
  return output;
}

// A scalar that is more than `bound` where something of the step is: a length, or a value.
Value* Condition(Rewriter& rewriter, Value* value, Random& random) {
  const auto number = [&](int64_t x) { return rewriter.Constant(Tensor::Of<int64_t>({}, {x})); };
  if (random() % 4 == 0) {
    return rewriter.Constant(Tensor::Of<bool>({}, std::vector<bool>{random() % 2 == 0}));
  }
  static constexpr int64_t kBounds[] = {0, 1, 2, 5, 12};
  const int64_t bound = kBounds[random() % std::size(kBounds)];
  if (testing::IsFloat(value) && random() % 3 == 0) {
    Value* largest = rewriter.AddInt("ReduceMax", {value}, "keepdims", 0);
    return rewriter.Add("Greater", {largest, NumberLike(rewriter, *value, 0.5)});
  }
  const int axis = PickVaryingAxis(*value, random);
  if (axis < 0) return nullptr;
  Value* shape = rewriter.Add("Shape", {value});
  Value* size = rewriter.AddInt("Gather", {shape, number(axis)}, "axis", 0);
  return rewriter.Add("Greater", {size, number(bound)});
}

// If (condition) then the node, else the same and something on top.
bool InsideIf(Node& node, Random& random) {
  const int index =
      PickInput(node, random, [](const Value& value) { return testing::RankOf(&value) >= 1; });
  if (index < 0 || !MayMove(node)) return false;
  const bool is_float = testing::IsFloat(node.output(0));
  Rewriter rewriter(node);
  Value* condition = Condition(rewriter, node.input(index), random);
  if (!condition) return false;
  Value* chosen = rewriter.Add("If", {condition});
  Node& choice = *chosen->producer();
  const bool otherwise = is_float && random() % 4 != 0;
  for (const char* branch : {"then_branch", "else_branch"}) {
    auto body = std::make_shared<Graph>(node.graph());
    body->name = branch;
    Value* output = CopyInto(*body, node, node.inputs());
    if (otherwise && branch[0] == 'e') {
      output = Then(*body, "Neg", {output}, node.output(0)->dtype());
    }
    body->AddOutput(output);
    choice.SetAttribute(branch, MakeAttribute(body));
  }
  return rewriter.ReplaceWith(chosen);
}

// The node again and again over its own result.
bool InsideLoop(Node& node, Random& random) {
  const int index = PickInput(node, random, [&](const Value& value) {
    return node.output(0) && SameShape(value, *node.output(0));
  });
  if (index < 0 || !MayMove(node)) return false;
  Rewriter rewriter(node);
  const auto times = static_cast<int64_t>(random() % 3);
  Value* trips = rewriter.Constant(Tensor::Of<int64_t>({}, {times}));
  if (random() % 4 == 0) {  // as often as there are tokens
    const int axis = PickVaryingAxis(*node.input(index), random);
    if (axis < 0) return false;
    Value* shape = rewriter.Add("Shape", {node.input(index)});
    trips = rewriter.AddInt("Gather", {shape, rewriter.Constant(Tensor::Of<int64_t>({}, {axis}))},
                            "axis", 0);
  }
  Value* looped = rewriter.Add("Loop", {trips, nullptr, node.input(index)});
  auto body = std::make_shared<Graph>(node.graph());
  body->name = "body";
  body->AddInput(body->UniqueName("trip"), DataType::kInt64, Shape{});
  Value* go_on = body->AddInput(body->UniqueName("go_on"), DataType::kBool, Shape{});
  Value* state = body->AddInput(body->UniqueName("state"), node.output(0)->dtype(), std::nullopt);
  std::vector<Value*> inputs = node.inputs();
  inputs[static_cast<size_t>(index)] = state;
  body->AddOutput(Then(*body, "Identity", {go_on}, DataType::kBool));
  body->AddOutput(CopyInto(*body, node, inputs));
  looped->producer()->SetAttribute("body", MakeAttribute(body));
  return rewriter.ReplaceWith(looped);
}

}  // namespace

std::vector<Change> ControlChanges() {
  return {{"control flow", "inside an If", InsideIf},
          {"control flow", "inside a Loop", InsideLoop}};
}

}  // namespace pagefuse::fuzz
