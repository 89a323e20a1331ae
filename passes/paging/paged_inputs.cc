// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/paging/paged_inputs.h"

#include <algorithm>

#include "nlohmann/json.hpp"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/edit/graph_builder.h"
#include "pagefuse/passes/edit/graph_ports.h"

namespace pagefuse {
namespace {

bool IsStepName(std::string_view name) {
  for (std::string_view whole :
       {"input_ids", "positions", "query_start_loc", "seq_lens", "logit_rows"}) {
    if (name == whole) return true;
  }
  for (std::string_view start : {"block_table.", "slot_mapping.", "kv_cache.", "kv_cache_out."}) {
    if (name.starts_with(start)) return true;
  }
  return false;
}

Node* FirstNode(const Graph& graph) {
  return graph.nodes().empty() ? nullptr : graph.nodes().front().get();
}

// The packed input takes the name; the old value becomes its view as a batch of one.
Value* PackInput(Graph& graph, Value* old, std::string name) {
  RemoveInput(graph, old);
  graph.Rename(old, graph.UniqueName(name + ".batched"));
  Value* packed =
      graph.AddInput(graph.UniqueName(name), DataType::kInt64, Shape{Dim::Symbol("num_tokens")});
  Node* first = FirstNode(graph);
  GraphBuilder builder(graph, first, name);
  Value* typed = old->dtype() == DataType::kInt64 ? packed : builder.Cast(packed, old->dtype());
  graph.AddNode("", "Unsqueeze", {typed, builder.Ints({0})}, {old}, first);
  old->set_shape(Shape{Dim(1), Dim::Symbol("num_tokens")});
  return packed;
}

// The dims that `node` (Shape) reads of its input, as far as they have a meaning in the paged
// graph.
absl::StatusOr<std::vector<Dim>> PagedSizes(const Node& node, const DecoderInputs& inputs) {
  const Shape& shape = *node.input(0)->shape();
  PF_ASSIGN_OR_RETURN(int64_t start, node.IntAttribute("start", 0));
  PF_ASSIGN_OR_RETURN(int64_t end, node.IntAttribute("end", shape.rank()));
  if (start < 0) start += shape.rank();
  if (end < 0) end += shape.rank();
  start = std::clamp<int64_t>(start, 0, shape.rank());
  end = std::clamp<int64_t>(end, start, shape.rank());
  std::vector<Dim> sizes;
  for (int64_t axis = start; axis < end; ++axis) {
    const Dim& dim = shape[static_cast<int>(axis)];
    if (dim.is_constant()) {
      sizes.push_back(dim);
    } else if (ProvablyEqual(dim, inputs.batch)) {
      sizes.push_back(Dim(1));
    } else if (ProvablyEqual(dim, inputs.sequence)) {
      sizes.push_back(Dim::Symbol("num_tokens"));
    } else {
      return absl::FailedPreconditionError(StrCat(node.Description(), " reads the size ",
                                                  dim.ToString(), " of \"", node.input(0)->name(),
                                                  "\", which a paged graph does not have"));
    }
  }
  return sizes;
}

absl::Status ReplaceSizes(Graph& graph, Node* node, const DecoderInputs& inputs) {
  PF_ASSIGN_OR_RETURN(std::vector<Dim> sizes, PagedSizes(*node, inputs));
  GraphBuilder builder(graph, node, "sizes");
  std::vector<Value*> parts;
  for (const Dim& size : sizes) {
    if (auto number = size.constant()) {
      parts.push_back(builder.Ints({*number}));
      continue;
    }
    parts.push_back(builder.Add("Shape", {inputs.tokens}, {{"start", 1}}));
  }
  Value* all = parts.size() == 1 ? parts[0] : builder.Add("Concat", parts, {{"axis", 0}});
  graph.ReplaceAllUses(node->output(0), all);
  graph.EraseNode(node);
  return absl::OkStatus();
}

// The name as metadata can hold it, which is JSON.
std::string AsUtf8(const std::string& name) {
  const std::string text =
      nlohmann::json(name).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return nlohmann::json::parse(text).get<std::string>();
}

}  // namespace

void FreeStepNames(Graph& graph) {
  for (Value* value : graph.values()) {
    if (IsStepName(value->name())) {
      graph.Rename(value, graph.UniqueName(StrCat("exported.", value->name())));
    }
  }
}

Value* PackTokenInputs(Graph& graph, DecoderInputs& inputs, bool needs_positions) {
  PackInput(graph, inputs.tokens, "input_ids");
  for (Value* segment : inputs.segments) {
    inputs.zero_inputs.push_back(PackInput(graph, segment, AsUtf8(segment->name()))->name());
  }
  if (inputs.positions) return PackInput(graph, inputs.positions, "positions");
  if (!needs_positions) return nullptr;
  return graph.AddInput(graph.UniqueName("positions"), DataType::kInt64,
                        Shape{Dim::Symbol("num_tokens")});
}

namespace {

// `positions` times `step` plus `offset`.
Value* Moved(GraphBuilder& builder, Value* positions, int64_t step, int64_t offset) {
  if (step != 1) positions = builder.Add("Mul", {positions, builder.Int(step)});
  if (offset != 0) positions = builder.Add("Add", {positions, builder.Int(offset)});
  return positions;
}

void ReplacePlace(Graph& graph, const TokenTrace::Place& place, Value* positions) {
  auto* value = const_cast<Value*>(place.value);
  Node* anchor = value->producer() ? value->producer() : FirstNode(graph);
  GraphBuilder builder(graph, anchor, "place");
  Value* moved = Moved(builder, positions, place.step, place.offset);
  // Axes other than that of the tokens have length 1, or repeat.
  std::vector<int64_t> view(value->shape()->rank(), 1);
  std::vector<int64_t> repeats = view;
  view[place.axis] = -1;
  for (int axis = 0; axis < value->shape()->rank(); ++axis) {
    repeats[axis] = (*value->shape())[axis].constant().value_or(1);
  }
  moved = builder.Add("Reshape", {moved, builder.Ints(view)});
  if (std::ranges::count(repeats, 1) != value->shape()->rank()) {
    moved = builder.Add("Expand", {moved, builder.Ints(repeats)});
  }
  if (value->dtype() != DataType::kInt64) moved = builder.Cast(moved, value->dtype());
  graph.ReplaceAllUses(value, moved);
}

}  // namespace

void ReplacePlaces(Graph& graph, const TokenTrace& trace, Value* positions) {
  for (const TokenTrace::Place& place : trace.places) ReplacePlace(graph, place, positions);
  for (const TokenTrace::TableCut& cut : trace.cuts) {
    GraphBuilder builder(graph, cut.slice, "place");
    Value* rows =
        builder.Add("Gather", {cut.slice->input(0), Moved(builder, positions, 1, cut.offset)},
                    {{"axis", cut.axis}});
    graph.ReplaceAllUses(cut.slice->output(0), rows);
  }
}

absl::Status DropSizedInputs(Graph& graph, const DecoderInputs& inputs) {
  std::vector<Value*> dropped = inputs.pasts;
  if (inputs.padding) dropped.push_back(inputs.padding);
  dropped.insert(dropped.end(), inputs.unread.begin(), inputs.unread.end());
  for (Value* value : dropped) {
    while (!value->uses().empty()) {
      Node* reader = value->uses().front().node;
      if (!reader->Is("Shape")) {
        return absl::FailedPreconditionError(
            StrCat(reader->Description(), " reads \"", value->name(), "\" outside the attention"));
      }
      PF_RETURN_IF_ERROR(ReplaceSizes(graph, reader, inputs));
    }
    if (value->is_output()) {
      return absl::FailedPreconditionError(
          StrCat("input \"", value->name(), "\" is a graph output too: it cannot go"));
    }
    RemoveInput(graph, value);
    graph.EraseValue(value);
  }
  return absl::OkStatus();
}

}  // namespace pagefuse
