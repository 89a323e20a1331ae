// Sizes are read from graph inputs, so that no inner value is kept alive only to be asked for its
// shape, and so that the same size is one value wherever an exporter read it.
#include <optional>

#include "pagefuse/passes/canonicalise/view_rules.h"

namespace pagefuse {
namespace {

struct Place {
  Value* input = nullptr;
  int axis = 0;
};

// The first graph input that has the dim.
std::optional<Place> FindDim(const Graph& graph, const Dim& dim) {
  for (Value* input : graph.inputs()) {
    const Shape* shape = ShapeOf(input);
    if (shape == nullptr || input->initializer() != nullptr) continue;
    for (int axis = 0; axis < shape->rank(); ++axis) {
      if (ProvablyEqual((*shape)[axis], dim)) return Place{input, axis};
    }
  }
  return std::nullopt;
}

bool IsShapeOf(const Node& node, const Place& place) {
  return node.Is("Shape") && node.input(0) == place.input &&
         IntOr(node, "start", 0) == place.axis && IntOr(node, "end", -1) == place.axis + 1;
}

// True if the node reads the place already: Shape of one axis, or its Squeeze to a scalar.
bool ReadsPlace(const Node& node, const Place& place, bool scalar) {
  if (!scalar) return IsShapeOf(node, place);
  return node.Is("Squeeze") && node.input(0)->producer() != nullptr &&
         IsShapeOf(*node.input(0)->producer(), place);
}

}  // namespace

bool ReadSizeFromInput(Node& node, Peephole& peephole) {
  if (peephole.graph().parent() != nullptr) return false;
  const Value* output = node.output(0);
  if (output == nullptr || output->dtype() != DataType::kInt64) return false;
  const Shape* shape = ShapeOf(output);
  const auto known = peephole.contents().find(output);
  if (shape == nullptr || known == peephole.contents().end() || known->second.size() != 1) {
    return false;
  }
  const Dim dim = known->second.front();
  if (!dim.known() || dim.is_constant() || shape->rank() > 1) return false;
  const std::optional<Place> place = FindDim(peephole.graph(), dim);
  const bool scalar = shape->rank() == 0;
  if (!place.has_value() || ReadsPlace(node, *place, scalar)) return false;
  const auto one_axis = [&place](Node& reader) {
    reader.SetAttribute("start", MakeAttribute(static_cast<int64_t>(place->axis)));
    reader.SetAttribute("end", MakeAttribute(static_cast<int64_t>(place->axis) + 1));
  };
  // The Shape that feeds its own Squeeze is in the wanted form as soon as the Squeeze is; do not
  // chase it.
  if (!scalar) return peephole.ReplaceByNode(node, "Shape", {place->input}, one_axis);
  Value* size = peephole.AddNode(node, "Shape", {place->input}, one_axis);
  Value* axes = AddInts(peephole.graph(), "axes", {0}, peephole.contents());
  return peephole.ReplaceByNode(node, "Squeeze", {size, axes});
}

}  // namespace pagefuse
