// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/paging/batched_tokens.h"

#include <algorithm>
#include <string>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/microsoft/paged_attention.h"
#include "pagefuse/passes/edit/graph_builder.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/graph_ports.h"
#include "pagefuse/passes/paging/grouped_attention.h"

namespace pagefuse {
namespace {

namespace ms = microsoft_ops;

// What stands in the same place of both ops, from here to there.
struct Moved {
  int from;
  int to;
};
constexpr Moved kMoved[] = {
    {ms::kMspCos, 7},     {ms::kMspSin, 8},          {ms::kMspHeadSink, 11},   {ms::kMspKScale, 12},
    {ms::kMspVScale, 13}, {ms::kMspQNormWeight, 14}, {ms::kMspKNormWeight, 15}};
constexpr int kPasts = 3, kLengths = 5, kTotal = 6, kPorts = 16;

// Inputs that describe the packed step or hold its cache.
constexpr int kOfTheStep[] = {ms::kMspKeyCache, ms::kMspValueCache, ms::kMspCumulative,
                              ms::kMspPast,     ms::kMspBlockTable, ms::kMspSlots,
                              ms::kMspMetadata};

absl::Status CheckNode(const Node& node) {
  if (StringOr(node, "kv_cache_layout", "SEPARATE") != "SEPARATE") {
    return Unfit(node, "caches latent rows, whose values are channels of keys");
  }
  if (IntOr(node, "v_head_size", 0) != 0) return Unfit(node, "has values of another size");
  if (IntOr(node, "rotary_offset", 0) != 0) return Unfit(node, "rotates from an offset on");
  for (int port : kOfTheStep) {
    const Value* value = node.input(port);
    if (!value || value->is_input()) continue;
    return Unfit(node, StrCat("\"", value->name(), "\" is no input of the graph"));
  }
  const Value* cache = node.input(ms::kMspKeyCache);
  const auto& shape = cache->shape();
  const bool sized =
      shape && shape->rank() == 4 && (*shape)[2].constant() && (*shape)[3].constant();
  if (cache->dtype() == DataType::kFloat8E4M3FN && !sized) {
    return Unfit(node, "has a cache of 8-bit floats of unknown size");
  }
  for (int output = 1; output < node.num_outputs(); ++output) {
    const Value* value = node.output(output);
    if (value && !value->uses().empty()) return Unfit(node, "its cache is read inside the graph");
  }
  return absl::OkStatus();
}

// Tokens of the same sequences, after as many tokens of each.
absl::Status CheckSameStep(const Node& first, const Node& node) {
  for (int port : {ms::kMspCumulative, ms::kMspPast}) {
    if (node.input(port) == first.input(port)) continue;
    return Unfit(
        node, StrCat("\"", node.input(port)->name(), "\": expected \"", first.input(port)->name(),
                     "\", as ", first.Description(), " has it"));
  }
  return absl::OkStatus();
}

absl::Status NoteCaches(const Node& node, PastLedger& pasts) {
  for (const bool keys : {true, false}) {
    const Value* cache = node.input(keys ? ms::kMspKeyCache : ms::kMspValueCache);
    if (!cache) return Unfit(node, "has no cache of values");
    const Value* updated = node.output(keys ? 1 : 2);
    // A cache that the node writes where it is need be no output.
    const bool given_back = updated && updated->is_output();
    PF_RETURN_IF_ERROR(pasts.Note(node, {.past = cache,
                                         .role = keys ? "keys" : "values",
                                         .present = given_back ? updated : nullptr,
                                         .in_place = true}));
  }
  return absl::OkStatus();
}

class Batching {
 public:
  Batching(Graph& graph, PastLedger& pasts) : graph_(graph), pasts_(pasts) {}

  absl::StatusOr<const Value*> Run() {
    const std::vector<Node*> nodes = NodesOf(graph_, "PagedAttention", "com.microsoft");
    if (nodes.empty()) return nullptr;
    for (const Node* node : nodes) {
      PF_RETURN_IF_ERROR(CheckNode(*node));
      PF_RETURN_IF_ERROR(CheckSameStep(*nodes[0], *node));
      PF_RETURN_IF_ERROR(NoteCaches(*node, pasts_));
    }
    PF_RETURN_IF_ERROR(FindTokens(*nodes[0]));
    lengths_ = graph_.AddInput(graph_.UniqueName("seqlens_k"), DataType::kInt32, Shape{1});
    total_ =
        graph_.AddInput(graph_.UniqueName("total_sequence_length"), DataType::kInt32, Shape{1});
    for (Node* node : nodes) {
      for (int port : kOfTheStep) {
        if (Value* value = node->input(port)) step_inputs_.push_back(value);
      }
      Replace(node);
    }
    PF_RETURN_IF_ERROR(DropStepInputs());
    BatchInputs();
    BatchOutputs();
    return lengths_;
  }

 private:
  absl::Status FindTokens(const Node& node) {
    const auto& query = node.input(ms::kMspQuery)->shape();
    if (!query || query->rank() != 2 || !(*query)[0].symbol()) {
      return Unfit(node, "expected a query [tokens, columns] of any number of tokens");
    }
    tokens_ = (*query)[0];
    return absl::OkStatus();
  }

  bool IsByToken(const Value* value, int rank) const {
    return value->shape() && value->shape()->rank() == rank &&
           ProvablyEqual((*value->shape())[0], tokens_);
  }

  void Replace(Node* node) {
    GraphBuilder builder(graph_, node, node->output(0)->name());
    std::vector<Value*> inputs(kPorts, nullptr);
    for (int port : {ms::kMspQuery, ms::kMspKey, ms::kMspValue}) {
      if (Value* rows = node->input(port)) {
        inputs[port] = builder.Add("Unsqueeze", {rows, builder.Ints({0})});
      }
    }
    if (node->input(ms::kMspKeyCache)->dtype() == DataType::kFloat8E4M3FN) {
      for (int i : {0, 1}) inputs[kPasts + i] = EmptyPast(*node->input(ms::kMspKeyCache + i));
    }
    inputs[kLengths] = lengths_;
    inputs[kTotal] = total_;
    for (const Moved& moved : kMoved) inputs[moved.to] = node->input(moved.from);
    Node* grouped = builder.AddNode("com.microsoft", "GroupQueryAttention", inputs, 1);
    TakePlace(*grouped, *node);
    for (const auto& [name, attribute] : node->attributes()) {
      if (name == "kv_cache_layout" || name == "v_head_size" || name == "rotary_offset") continue;
      Graph::ValueMap none;
      grouped->SetAttribute(name, Graph::CloneAttribute(attribute, &graph_, none));
    }
    Value* rows = builder.Add("Squeeze", {grouped->output(0), builder.Ints({0})});
    for (int output = 1; output < node->num_outputs(); ++output) {
      if (node->output(output)) RemoveOutput(graph_, node->output(output));
    }
    ReplaceNode(node, rows);
  }

  // No rows, of the type that new ones are rounded to: [1, Hk, 0, D].
  Value* EmptyPast(const Value& cache) {
    const Shape& shape = *cache.shape();
    return graph_.AddInitializer(
        graph_.UniqueName(cache.name() + ".empty"),
        *Tensor::Allocate(cache.dtype(), {1, *shape[2].constant(), 0, *shape[3].constant()}));
  }

  absl::Status DropStepInputs() {
    for (int i = static_cast<int>(graph_.inputs().size()) - 1; i >= 0; --i) {
      Value* input = graph_.inputs()[i];
      if (std::ranges::count(step_inputs_, input) == 0) continue;
      if (!input->uses().empty()) {
        return Unfit(*input->uses()[0].node,
                     StrCat("reads \"", input->name(), "\", which is of the packed step"));
      }
      graph_.RemoveInput(i);
    }
    return absl::OkStatus();
  }

  // ids [T] -> ids [1, T] -- Squeeze
  void BatchInputs() {
    const std::vector<Value*> inputs = graph_.inputs();
    for (Value* input : inputs) {
      if (!IsInteger(input->dtype()) || !IsByToken(input, 1)) continue;
      const std::string name = input->name();
      RemoveInput(graph_, input);
      graph_.Rename(input, graph_.UniqueName(name + ".packed"));
      Value* batched = graph_.AddInput(name, input->dtype(), Shape{Dim(1), tokens_});
      Node* first = graph_.nodes().empty() ? nullptr : graph_.nodes().front().get();
      GraphBuilder builder(graph_, first, name);
      graph_.ReplaceAllUses(input, builder.Add("Squeeze", {batched, builder.Ints({0})}));
    }
  }

  // logits [T, V] -- Unsqueeze -> logits [1, T, V]
  void BatchOutputs() {
    for (int i = 0; i < static_cast<int>(graph_.outputs().size()); ++i) {
      Value* output = graph_.outputs()[i];
      if (!IsByToken(output, 2)) continue;
      const std::string name = output->name();
      graph_.Rename(output, graph_.UniqueName(name + ".packed"));
      GraphBuilder builder(graph_, nullptr, name);
      Value* batched = builder.Add("Unsqueeze", {output, builder.Ints({0})});
      graph_.ReplaceOutput(i, batched);
      graph_.Rename(batched, name);
    }
  }

  Graph& graph_;
  PastLedger& pasts_;
  Dim tokens_;
  Value* lengths_ = nullptr;
  Value* total_ = nullptr;
  std::vector<Value*> step_inputs_;
};

}  // namespace

absl::StatusOr<const Value*> BatchPackedTokens(Model& model, PastLedger& pasts) {
  return Batching(*model.graph, pasts).Run();
}

}  // namespace pagefuse
