// SPDX-License-Identifier: Apache-2.0
// Reads sizes from graph inputs, so that no inner value is kept alive only for its shape, and so
// that the same size is one value wherever an exporter read it.
#include <optional>
#include <vector>

#include "pagefuse/passes/simplify/view_rules.h"

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

// The one dim that the node's output, a list of one or a scalar, tells; nullopt if it is known as a
// number or not at all.
std::optional<Dim> SizeTold(const Node& node, Peephole& peephole) {
  const Value* output = node.output(0);
  if (output == nullptr || output->dtype() != DataType::kInt64) return std::nullopt;
  const Shape* shape = ShapeOf(output);
  const auto known = peephole.contents().find(output);
  if (shape == nullptr || known == peephole.contents().end() || known->second.size() != 1) {
    return std::nullopt;
  }
  const Dim& dim = known->second.front();
  if (!dim.known() || dim.is_constant() || shape->rank() > 1) return std::nullopt;
  return dim;
}

Attributes Along(const Place& place) { return {{"start", place.axis}, {"end", place.axis + 1}}; }

// Reads an axis of an input as a list of one.
Value* AddShape(Node& before, const Place& place, Peephole& peephole) {
  return peephole.AddNode(before, "Shape", {place.input}, Along(place));
}

// The inputs that have the terms of a sum of two dims or more; empty if one of them has none.
std::vector<Place> PlacesOfTerms(const Graph& graph, const Dim& dim) {
  std::vector<Place> places;
  if (dim.offset() != 0 || dim.terms().size() < 2) return {};
  for (const auto& [symbol, factor] : dim.terms()) {
    const auto place = FindDim(graph, Dim::Symbol(symbol));
    if (factor != 1 || !place.has_value()) return {};
    places.push_back(*place);
  }
  return places;
}

// True if the node takes a size of a value that is computed.
bool ReadsInnerSize(const Node& node) {
  const Node* shape = node.Is("Shape") ? &node : node.input(0)->producer();
  return shape != nullptr && shape->Is("Shape") && !shape->input(0)->is_input();
}

}  // namespace

bool AddSizesOfInputs(Node& node, Peephole& peephole) {
  if (peephole.graph().parent() != nullptr || !ReadsInnerSize(node)) return false;
  const std::optional<Dim> dim = SizeTold(node, peephole);
  if (!dim.has_value()) return false;
  const std::vector<Place> places = PlacesOfTerms(peephole.graph(), *dim);
  if (places.empty()) return false;
  const bool scalar = ShapeOf(node.output(0))->rank() == 0;
  Value* sum = AddShape(node, places.front(), peephole);
  for (size_t i = 1; i < places.size(); ++i) {
    Value* next = AddShape(node, places[i], peephole);
    if (!scalar && i + 1 == places.size()) return peephole.ReplaceByNode(node, "Add", {sum, next});
    sum = peephole.AddNode(node, "Add", {sum, next});
  }
  Value* axes = peephole.Ints("axes", {0});
  return peephole.ReplaceByNode(node, "Squeeze", {sum, axes});
}

bool ReadSizeFromInput(Node& node, Peephole& peephole) {
  if (peephole.graph().parent() != nullptr) return false;
  const std::optional<Dim> dim = SizeTold(node, peephole);
  if (!dim.has_value()) return false;
  const std::optional<Place> place = FindDim(peephole.graph(), *dim);
  const bool scalar = ShapeOf(node.output(0))->rank() == 0;
  if (!place.has_value() || ReadsPlace(node, *place, scalar)) return false;
  // The Shape that feeds its own Squeeze is in the wanted form as soon as the Squeeze is; do not
  // chase it.
  if (!scalar) return peephole.ReplaceByNode(node, "Shape", {place->input}, Along(*place));
  Value* size = AddShape(node, *place, peephole);
  Value* axes = peephole.Ints("axes", {0});
  return peephole.ReplaceByNode(node, "Squeeze", {size, axes});
}

bool PlacesOfOnes(Node& node, Peephole& peephole) {
  constexpr int64_t kRangeTakesNumbers = 11;
  const Value* ones = node.input(0);
  if (OpsetOf(peephole.opsets(), "") < kRangeTakesNumbers ||
      FilledNumberOf(ones).value_or(0) == 0) {
    return false;
  }
  Value* length = ones->producer()->input(0);
  const Shape* sizes = ShapeOf(length);
  if (!sizes || sizes->constant() != std::vector<int64_t>{1}) return false;
  Value* axes = peephole.Ints("axes", {0});
  Value* range = peephole.AddNode(node, "Range", CountInputs(node, peephole, length, axes));
  return peephole.ReplaceByNode(node, "Unsqueeze", {range, axes});
}

}  // namespace pagefuse
