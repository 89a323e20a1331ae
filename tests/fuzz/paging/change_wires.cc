// SPDX-License-Identifier: Apache-2.0
// Nodes that read other values, outputs more, inputs more.
#include <algorithm>

#include "change_parts.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/edit/graph_edit.h"

namespace pagefuse::fuzz {
namespace {

// What may be read instead: of the same type and shape, and known before the node.
std::vector<Value*> Alike(const Node& node, const Value& value) {
  std::vector<Value*> found;
  const auto add = [&](Value* other) {
    if (other && other != &value && SameShape(*other, value)) found.push_back(other);
  };
  for (Value* input : node.graph()->inputs()) add(input);
  for (const auto& before : node.graph()->nodes()) {
    if (before.get() == &node) break;
    for (Value* output : before->outputs()) add(output);
  }
  return found;
}

bool AnotherValue(Node& node, Random& random) {
  const auto any = [](const Value& value) { return value.shape().has_value(); };
  return ReplaceInput(node, random, any, [&](Rewriter&, Value* value) -> Value* {
    const std::vector<Value*> found = Alike(node, *value);
    return found.empty() ? nullptr : PickOne(found, random);
  });
}

// Half of another value of the same shape comes on top.
bool AnotherAdded(Node& node, Random& random) {
  return ReplaceInput(
      node, random, [](const Value& value) { return testing::IsFloat(&value); },
      [&](Rewriter& rewriter, Value* value) -> Value* {
        const std::vector<Value*> found = Alike(node, *value);
        if (found.empty()) return nullptr;
        Value* half =
            rewriter.Add("Mul", {PickOne(found, random), NumberLike(rewriter, *value, 0.5)});
        return rewriter.Add("Add", {value, half});
      });
}

// And, Or, Xor with another mask.
bool AnotherMask(Node& node, Random& random) {
  static constexpr const char* kOps[] = {"And", "Or", "Xor"};
  return ReplaceInput(
      node, random, [](const Value& value) { return value.dtype() == DataType::kBool; },
      [&](Rewriter& rewriter, Value* value) -> Value* {
        const std::vector<Value*> found = Alike(node, *value);
        if (found.empty()) return nullptr;
        return rewriter.Add(PickOne(kOps, random), {value, PickOne(found, random)});
      });
}

// The other matrix of the same shape.
bool AnotherConstant(Node& node, Random& random) {
  if (node.num_inputs() < 2) return false;
  const int index = static_cast<int>(random() % node.num_inputs());
  Value* constant = node.input(index);
  if (!constant || !constant->IsConstant()) return false;
  std::vector<Value*> found;
  for (Value* other : node.graph()->initializers()) {
    if (other != constant && SameShape(*other, *constant)) found.push_back(other);
  }
  if (found.empty()) return false;
  node.SetInput(index, PickOne(found, random));
  return true;
}

bool InputsExchanged(Node& node, Random& random) {
  if (node.num_inputs() < 2) return false;
  const int i = static_cast<int>(random() % node.num_inputs());
  const int j = static_cast<int>(random() % node.num_inputs());
  Value *first = node.input(i), *second = node.input(j);
  if (!first || !second || first == second || first->dtype() != second->dtype()) return false;
  node.SetInput(i, second);
  node.SetInput(j, first);
  return true;
}

bool LeftOut(Node& node, Random& random) {
  const int index = PickInput(node, random, [&](const Value& value) {
    return node.output(0) && SameShape(value, *node.output(0));
  });
  if (index < 0 || node.num_outputs() != 1) return false;
  Rewriter rewriter(node);
  return rewriter.ReplaceWith(rewriter.Add("Identity", {node.input(index)}));
}

bool OutputMore(Node& node, Random& random) {
  Value* output = node.num_outputs() == 0 ? nullptr : node.output(0);
  if (!output || output->is_output()) return false;
  Graph& graph = *node.graph();
  static constexpr const char* kOps[] = {"Identity", "Shape", "Neg"};
  const char* op = testing::IsFloat(output) ? PickOne(kOps, random) : "Identity";
  Value* more = graph.AddValue(graph.UniqueName("more"));
  graph.AddNode("", op, {output}, {more});
  graph.AddOutput(more);
  return true;
}

// A constant that callers may give.
bool ConstantAsInput(Node& node, Random& random) {
  if (node.num_inputs() == 0) return false;
  Value* constant = node.input(static_cast<int>(random() % node.num_inputs()));
  if (!constant || !constant->IsConstant()) return false;
  node.graph()->MarkInput(constant);
  return true;
}

// An input of 0 a token that is added to positions, ids or rows; or that nothing reads.
bool InputMore(DecoderCase& decoder, Random& random) {
  static constexpr const char* kNames[] = {"token_type_ids", "position_offset", "extra", "pos"};
  Graph& graph = *decoder.model.graph;
  Value* ids = InputOf(decoder, FeedRole::kIds);
  const std::string name = graph.UniqueName(PickOne(kNames, random));
  if (!ids || graph.FindValue(name)) return false;
  Value* more = graph.AddInput(name, DataType::kInt64, ids->shape());
  decoder.feeds[name] = FeedRole::kTypes;
  if (random() % 4 == 0) return true;
  const bool to_positions = random() % 2 == 0;
  Value* value = to_positions ? InputOf(decoder, FeedRole::kPositions) : ids;
  if (!value || value->uses().empty()) return false;
  const std::vector<Use> readers = value->uses();
  Rewriter rewriter(*graph.nodes().front());
  Value* sum = rewriter.Add("Add", {value, rewriter.Cast(more, value->dtype())});
  for (const Use& use : readers) {
    if (!use.node->Is("Shape")) use.node->SetInput(use.index, sum);
  }
  return true;
}

// A reader of ids reads positions, or a mask; or the other way round.
bool RolesExchanged(DecoderCase& decoder, Random& random) {
  std::vector<Value*> inputs;
  for (const FeedRole role :
       {FeedRole::kIds, FeedRole::kPositions, FeedRole::kMask, FeedRole::kTypes}) {
    if (Value* input = InputOf(decoder, role)) inputs.push_back(input);
  }
  if (inputs.size() < 2) return false;
  Value* from = PickOne(inputs, random);
  std::erase(inputs, from);
  Value* to = PickOne(inputs, random);
  std::vector<Use> readers = from->uses();
  std::erase_if(readers, [](const Use& use) { return use.node->Is("Shape"); });
  if (readers.empty()) return false;
  const Use& use = PickOne(readers, random);
  Rewriter rewriter(*decoder.model.graph->nodes().front());
  Value* cast = from->dtype() == to->dtype() ? to : rewriter.Cast(to, from->dtype());
  use.node->SetInput(use.index, cast);
  return true;
}

}  // namespace

std::vector<Change> WireChanges() {
  return {{"wires", "another value read", AnotherValue},
          {"wires", "another value added", AnotherAdded},
          {"wires", "another mask joined", AnotherMask},
          {"wires", "another constant read", AnotherConstant},
          {"wires", "inputs exchanged", InputsExchanged},
          {"wires", "a node left out", LeftOut},
          {"ports", "an output more", OutputMore},
          {"ports", "a constant as an input", ConstantAsInput},
          {"ports", "an input more", nullptr, InputMore},
          {"ports", "roles exchanged", nullptr, RolesExchanged}};
}

}  // namespace pagefuse::fuzz
