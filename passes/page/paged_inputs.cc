#include "pagefuse/passes/page/paged_inputs.h"

#include <algorithm>

#include "pagefuse/ir/status_macros.h"
#include "pagefuse/ir/str_cat.h"
#include "pagefuse/passes/graph_builder.h"

namespace pagefuse {
namespace {

bool IndexesATable(const Value* value) {
  return std::any_of(value->uses().begin(), value->uses().end(), [](const Use& use) {
    return use.index == 1 && use.node->Is("Gather") && use.node->input(0)->IsConstant() &&
           use.node->input(0)->initializer()->rank() == 2;
  });
}

bool IsIndexMatrix(const Value* value) {
  return IsInteger(value->dtype()) && value->shape() && value->shape()->rank() == 2;
}

int InputIndex(const Graph& graph, const Value* value) {
  const auto& inputs = graph.inputs();
  return static_cast<int>(std::find(inputs.begin(), inputs.end(), value) - inputs.begin());
}

// The packed input takes the name; the old value becomes its view as a batch of one.
void PackInput(Graph& graph, Value* old, const std::string& name) {
  graph.RemoveInput(InputIndex(graph, old));
  graph.Rename(old, graph.UniqueName(name + ".batched"));
  Value* packed =
      graph.AddInput(graph.UniqueName(name), old->dtype(), Shape{Dim::Symbol("num_tokens")});
  Node* first = graph.nodes().empty() ? nullptr : graph.nodes().front().get();
  GraphBuilder builder(graph, first, name);
  graph.AddNode("", "Unsqueeze", {packed, builder.Ints({0})}, {old}, first);
  old->set_shape(Shape{Dim(1), Dim::Symbol("num_tokens")});
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
    Value* shape = builder.Add("Shape", {inputs.tokens}, "start", 1);
    parts.push_back(shape);
  }
  Value* all = parts.size() == 1 ? parts[0] : builder.Add("Concat", parts, "axis", 0);
  graph.ReplaceAllUses(node->output(0), all);
  graph.EraseNode(node);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<DecoderInputs> FindDecoderInputs(const Graph& graph,
                                                const std::vector<Value*>& pasts, Value* padding) {
  DecoderInputs found;
  found.pasts = pasts;
  found.padding = padding;
  for (Value* input : graph.inputs()) {
    if (input == padding || std::count(pasts.begin(), pasts.end(), input) > 0) continue;
    if (input->initializer()) continue;
    if (!IsIndexMatrix(input)) {
      return absl::FailedPreconditionError(
          StrCat("input \"", input->name(), "\" is neither token ids, positions, mask nor past"));
    }
    if (!found.tokens && IndexesATable(input)) {
      found.tokens = input;
    } else if (!found.padding && input->uses().empty()) {
      found.padding = input;
    } else if (!found.positions) {
      found.positions = input;
    } else {
      return absl::FailedPreconditionError(StrCat("inputs \"", found.positions->name(), "\" and \"",
                                                  input->name(), "\" may both be positions"));
    }
  }
  if (!found.tokens) {
    return absl::FailedPreconditionError("no input indexes an embedding table");
  }
  found.batch = (*found.tokens->shape())[0];
  found.sequence = (*found.tokens->shape())[1];
  return found;
}

void PackTokenInputs(Graph& graph, DecoderInputs& inputs) {
  PackInput(graph, inputs.tokens, "input_ids");
  if (inputs.positions) PackInput(graph, inputs.positions, "positions");
}

absl::Status DropSizedInputs(Graph& graph, const DecoderInputs& inputs) {
  std::vector<Value*> dropped = inputs.pasts;
  if (inputs.padding) dropped.push_back(inputs.padding);
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
    graph.RemoveInput(InputIndex(graph, value));
    graph.EraseValue(value);
  }
  return absl::OkStatus();
}

}  // namespace pagefuse
