// SPDX-License-Identifier: Apache-2.0
// fuse-elementwise: fuses a chain of elementwise ops into one node that walks memory once.
//
//   x -- Pow -- Mul -- Add -- Tanh -- Mul -- y    =>    x -- pagefuse.Elementwise <body> -- y
//
// Which ops are elementwise their definitions say. A chain grows from its output towards its
// inputs: a node joins if only nodes of the chain read it and its result has the shape of the
// chain's, so that nothing is computed twice and nothing has to wait. What only spreads smaller
// values over that shape, as the angles of which both Cos and Sin are taken, is computed again in
// each of the chains that read it: that takes less than to write and to read it. Results that are neither
// floats nor bools, or have fewer than two dims, are sizes and indices more often than data: there
// a pass over memory costs nothing, and folding and shape inference want to see the nodes.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/match_failure.h"
#include "pagefuse/passes/edit/op_types.h"
#include "pagefuse/passes/function_pass.h"
#include "pagefuse/passes/fuse/fuse.h"

namespace pagefuse {
namespace {

constexpr std::string_view kName = "fuse-elementwise";

// True if elements of the type start at bytes, so that a tile may start at any of them.
bool HasWholeBytes(const Value& value) {
  const int width = value.dtype() == DataType::kUndefined ? 0 : BitWidth(value.dtype());
  return width > 0 && width % 8 == 0;
}

// A bound of Clip does not broadcast: that it is one number has to be known.
bool HasNumbersForBounds(const Node& node) {
  if (!node.Is("Clip")) return true;
  return std::all_of(node.inputs().begin() + 1, node.inputs().end(), [](const Value* bound) {
    if (bound == nullptr) return true;
    const std::optional<Shape>& shape = bound->shape();
    return shape.has_value() && (shape->rank() == 0 || (*shape)[0].constant() == 1);
  });
}

// True if the node may be in a chain.
bool IsLink(const Node& node, const OpsetImports& opsets) {
  const OpDef* op = FindOpDef(node, opsets);
  if (op == nullptr || !op->is_elementwise() || HasAttributeRef(node)) return false;
  if (!HasNumbersForBounds(node)) return false;
  const Value* result = node.output(0);
  if (node.num_outputs() != 1 || result == nullptr) return false;
  if (!result->shape().has_value() || result->shape()->rank() < 2) return false;
  const bool is_data = result->dtype() == DataType::kBool || IsFloatingPoint(result->dtype());
  return is_data && HasWholeBytes(*result) &&
         std::all_of(node.inputs().begin(), node.inputs().end(),
                     [](const Value* input) { return input == nullptr || HasWholeBytes(*input); });
}

// True if `value` is repeated along some axis of the shape.
bool IsSpreadOver(const Value& value, const Shape& shape) {
  if (!value.shape().has_value()) return false;
  const int missing = shape.rank() - value.shape()->rank();
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const bool is_one = axis < missing || (*value.shape())[axis - missing].constant() == 1;
    if (is_one && shape[axis].constant() != 1) return true;
  }
  return false;
}

// True if it takes less to compute the node's result again than to write and to read it.
bool IsCheaperThanMemory(const Node& node) {
  return IsAnyOf(node, {"Add", "Mul", "Sub"}) &&
         std::all_of(node.inputs().begin(), node.inputs().end(), [&node](const Value* input) {
           return IsSpreadOver(*input, *node.output(0)->shape());
         });
}

// Finds and fuses the chains of one graph.
class ChainFusion {
 public:
  ChainFusion(Model& model, PassContext& context, const GraphScope& scope)
      : model_(model), context_(context), graph_(*scope.graph), opsets_(*scope.opsets) {
    for (const auto& node : graph_.nodes()) {
      positions_.emplace(node.get(), static_cast<int64_t>(positions_.size()));
    }
  }

  absl::StatusOr<bool> Run() {
    bool changed = false;
    std::vector<Node*> nodes = NodesOf(graph_);
    // Backwards, so that a chain is as long as it can be.
    for (auto it = nodes.rbegin(); it != nodes.rend(); ++it) {
      if (erased_.contains(*it) || !IsLink(**it, opsets_)) continue;
      const std::vector<Node*> chain = Grow(*it);
      if (chain.size() < 2) continue;
      PF_RETURN_IF_ERROR(Fuse(chain));
      PF_RETURN_IF_ERROR(context_.Rewrote(model_, kName));
      changed = true;
    }
    return changed;
  }

 private:
  // The chain that ends in `last`. A node that two of its nodes read is looked at with each of
  // them, and joins with the second.
  std::vector<Node*> Grow(Node* last) {
    std::vector<Node*> chain = {last};
    absl::flat_hash_set<const Node*> inside = {last};
    absl::flat_hash_map<const Value*, size_t> reads;  // by nodes of the chain
    for (size_t i = 0; i < chain.size(); ++i) {
      for (const Value* input : chain[i]->inputs()) {
        Node* producer = input == nullptr ? nullptr : input->producer();
        if (producer == nullptr || inside.contains(producer)) continue;
        const size_t reads_inside = ++reads[input];
        if (const absl::Status joins = Joins(*producer, *last, reads_inside); !joins.ok()) {
          context_.AddMissedMatch(kName, input->name(), StdView(joins.message()));
          continue;
        }
        inside.insert(producer);
        chain.push_back(producer);
      }
    }
    std::sort(chain.begin(), chain.end(),
              [this](const Node* a, const Node* b) { return positions_.at(a) < positions_.at(b); });
    return chain;
  }

  absl::Status Joins(const Node& node, const Node& last, size_t reads_inside) const {
    const Value& value = *node.output(0);
    if (node.graph() != &graph_ || !IsLink(node, opsets_)) {
      return MatchFailure(node.op_type(), " is not elementwise on tensors of floats or bools");
    }
    if (value.is_output()) return MatchFailure(value, " is a graph output");
    if (reads_inside < value.uses().size() && !IsComputedAgain(node)) {
      return MatchFailure(value, " is read outside of the chain");
    }
    const Value& result = *last.output(0);
    if (ProvablyEqual(*value.shape(), *result.shape())) return absl::OkStatus();
    return MatchFailure(value, " is ", value.shape()->ToString(), ", the chain is ",
                        result.shape()->ToString());
  }

  // True if all chains that read the node's result compute it themselves: nothing is left to read it
  // then.
  bool IsComputedAgain(const Node& node) const {
    const Value& value = *node.output(0);
    const auto joins_all = [&](const Use& use) {
      return use.node->graph() == &graph_ && IsLink(*use.node, opsets_) &&
             ProvablyEqual(*use.node->output(0)->shape(), *value.shape());
    };
    return IsCheaperThanMemory(node) &&
           std::all_of(value.uses().begin(), value.uses().end(), joins_all);
  }

  // What the chain reads from outside, in order. Memory that the result may take comes first.
  std::vector<Value*> InputsOf(const std::vector<Node*>& chain) const {
    const absl::flat_hash_set<const Node*> inside(chain.begin(), chain.end());
    std::vector<Value*> inputs;
    absl::flat_hash_set<const Value*> seen;
    for (const Node* node : chain) {
      for (Value* input : node->inputs()) {
        if (input == nullptr || inside.contains(input->producer())) continue;
        if (seen.insert(input).second) inputs.push_back(input);
      }
    }
    const Value& result = *chain.back()->output(0);
    const auto is_spare = [&](const Value* value) {
      const bool alike = value->dtype() == result.dtype() && value->shape().has_value() &&
                         ProvablyEqual(*value->shape(), *result.shape());
      const auto is_inside = [&](const Use& use) { return inside.contains(use.node); };
      return alike && value->producer() != nullptr && !value->is_output() &&
             std::all_of(value->uses().begin(), value->uses().end(), is_inside);
    };
    std::stable_partition(inputs.begin(), inputs.end(), is_spare);
    return inputs;
  }

  // The chain as a graph. Values keep their names, as their nodes leave the graph around it, all but
  // those that are computed again.
  std::shared_ptr<Graph> BodyOf(const std::vector<Node*>& chain,
                                const std::vector<Value*>& inputs) const {
    auto body = std::make_shared<Graph>(&graph_);
    const absl::flat_hash_set<const Node*> inside(chain.begin(), chain.end());
    absl::flat_hash_map<const Value*, Value*> copies = {{nullptr, nullptr}};
    for (size_t i = 0; i < inputs.size(); ++i) {
      copies[inputs[i]] =
          body->AddInput(body->UniqueName(StrCat("x", i)), inputs[i]->dtype(), inputs[i]->shape());
    }
    for (const Node* node : chain) {
      const Value& result = *node->output(0);
      const bool is_last = node == chain.back();
      const bool leaves = std::all_of(result.uses().begin(), result.uses().end(),
                                      [&](const Use& use) { return inside.contains(use.node); });
      std::string name = leaves ? result.name() : body->UniqueName(result.name());
      if (is_last) name = body->UniqueName("y");
      Value* copy = body->AddValue(std::move(name), result.dtype(), result.shape());
      copies[&result] = copy;
      std::vector<Value*> operands;
      for (const Value* input : node->inputs()) operands.push_back(copies.at(input));
      Node* link = body->AddNode(node->domain(), node->op_type(), std::move(operands), {copy});
      for (const auto& [name, attribute] : node->attributes()) link->SetAttribute(name, attribute);
      TakePlace(*link, *node);
    }
    body->name = "chain";
    body->AddOutput(copies.at(chain.back()->output(0)));
    return body;
  }

  absl::Status Fuse(const std::vector<Node*>& chain) {
    Node* last = chain.back();
    Value* result = last->output(0);
    const std::vector<Value*> inputs = InputsOf(chain);
    // What the result's value is called as soon as the old one is gone.
    Value* y = graph_.AddValue(graph_.UniqueName(result->name()), result->dtype(), result->shape());
    Node* fused = graph_.AddNode("pagefuse", "Elementwise", inputs, {y}, last);
    fused->name = last->name;
    for (const auto& [key, value] : last->metadata) {
      if (KeepsMetadata(key)) SetMetadata(fused->metadata, key, value);
    }
    if (OpsetOf(opsets_, "pagefuse") == 0) opsets_["pagefuse"] = 1;
    std::shared_ptr<Graph> body = BodyOf(chain, inputs);
    const std::string name = result->name();
    ReplaceValue(graph_, result, y);
    for (const Node* dead : EraseDead(last, context_.contents)) erased_.insert(dead);
    if (graph_.FindValue(name) == nullptr) graph_.Rename(y, name);
    fused->SetAttribute("body", MakeAttribute(std::move(body)));
    return absl::OkStatus();
  }

  Model& model_;
  PassContext& context_;
  Graph& graph_;
  OpsetImports& opsets_;
  absl::flat_hash_map<const Node*, int64_t> positions_;
  absl::flat_hash_set<const Node*> erased_;
};

absl::StatusOr<bool> Run(Model& model, PassContext& context) {
  absl::flat_hash_set<const Graph*> chains;  // that are there already
  bool changed = false;
  for (const GraphScope& scope : AllGraphs(model)) {
    for (const auto& node : scope.graph->nodes()) {
      if (!node->Is("Elementwise", "pagefuse")) continue;
      for (const Graph* body : node->Subgraphs()) chains.insert(body);
    }
    if (chains.contains(scope.graph)) continue;
    PF_ASSIGN_OR_RETURN(const bool changed_here, ChainFusion(model, context, scope).Run());
    changed = changed || changed_here;
  }
  return changed;
}

}  // namespace

std::unique_ptr<Pass> FuseElementwise() {
  return MakePass(
      kName, "Fuses chains of elementwise ops into Elementwise, which walks memory once.", Run, {},
      {{std::string(kName),
        "two or more elementwise ops on floats or bools of one shape, of two dims or more, "
        "that nothing else reads between them"}});
}

}  // namespace pagefuse
