// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <optional>

#include "pagefuse/passes/edit/axes.h"
#include "pagefuse/passes/edit/constants.h"
#include "pagefuse/passes/edit/ports.h"
#include "pagefuse/passes/simplify/view_rules.h"

namespace pagefuse {
namespace {

using ports::Slice;

}  // namespace

bool RemoveIdentity(Node& node, Peephole& peephole) {
  Value* input = node.input(0);
  if (input == nullptr) return false;
  return peephole.Replace(node, input);
}

bool RemoveDropout(Node& node, Peephole& peephole) {
  const Value* mask = node.output(ports::Dropout::kMask);
  if (mask != nullptr && (!mask->uses().empty() || mask->is_output())) return false;
  const Value* training = node.input(ports::Dropout::kTraining);
  if (training != nullptr &&
      (ConstantOf(training) == nullptr || !IsFilledWith(*ConstantOf(training), 0))) {
    return false;
  }
  return peephole.Replace(node, node.input(0));
}

bool RemoveExpand(Node& node, Peephole& peephole) {
  return SameShapes(node.output(0), node.input(0)) && peephole.Replace(node, node.input(0));
}

// A forward slice that keeps every size takes everything.
bool RemoveSlice(Node& node, Peephole& peephole) {
  if (!SameShapes(node.output(0), node.input(0))) return false;
  if (node.input(Slice::kSteps) != nullptr) {
    const auto steps = KnownInts(node.input(Slice::kSteps), peephole.contents());
    if (!steps.has_value()) return false;
    if (std::ranges::any_of(*steps, [](int64_t step) { return step < 0; })) return false;
  }
  return peephole.Replace(node, node.input(0));
}

bool RemoveSingleConcat(Node& node, Peephole& peephole) {
  return node.num_inputs() == 1 && node.input(0) != nullptr &&
         peephole.Replace(node, node.input(0));
}

bool SimplifyTranspose(Node& node, Peephole& peephole) {
  const auto perm = PermutationOf(node);
  if (!perm.has_value()) return false;
  if (MovesNothing(*perm)) return peephole.Replace(node, node.input(0));
  const Node* inner = node.input(0) == nullptr ? nullptr : node.input(0)->producer();
  if (inner != nullptr && inner->Is("Transpose") && inner->graph() == node.graph()) {
    const auto first = PermutationOf(*inner);
    if (!first.has_value() || first->size() != perm->size()) return false;
    std::vector<int64_t> both;
    for (int64_t axis : *perm) {
      if (axis < 0 || axis >= static_cast<int64_t>(first->size())) return false;
      both.push_back((*first)[axis]);
    }
    if (MovesNothing(both)) return peephole.Replace(node, inner->input(0));
    return peephole.ReplaceByNode(node, "Transpose", {inner->input(0)}, {{"perm", both}});
  }
  if (node.attribute("perm") != nullptr) return false;
  node.SetAttribute("perm", MakeAttribute(*perm));  // the default, written out
  return true;
}

// Bounds that mean a place in an axis of known size are written as that place: INT64_MAX and 1 <<
// 31 as the size, negative ones counted from the front.
bool CanonicalSlice(Node& node, Peephole& peephole) {
  const Shape* shape = ShapeOf(node.input(0));
  const auto starts = KnownInts(node.input(Slice::kStarts), peephole.contents());
  const auto ends = KnownInts(node.input(Slice::kEnds), peephole.contents());
  const auto axes = KnownInts(node.input(Slice::kAxes), peephole.contents());
  const auto steps = KnownInts(node.input(Slice::kSteps), peephole.contents());
  if (shape == nullptr || !starts || !ends || !axes) return false;
  if (node.input(Slice::kSteps) != nullptr && !steps) return false;
  std::vector<int64_t> new_starts = *starts, new_ends = *ends, new_axes = *axes;
  for (size_t i = 0; i < new_axes.size(); ++i) {
    new_axes[i] = NormalAxis(new_axes[i], shape->rank());
    if (new_axes[i] < 0 || new_axes[i] >= shape->rank()) return false;
    if (i >= new_starts.size() || i >= new_ends.size()) return false;
    if (steps.has_value() && (i >= steps->size() || (*steps)[i] < 0)) continue;
    const std::optional<int64_t> size = (*shape)[static_cast<int>(new_axes[i])].constant();
    for (std::vector<int64_t>* bounds : {&new_starts, &new_ends}) {
      int64_t& bound = (*bounds)[i];
      if (size.has_value()) {
        const int64_t place = bound < -*size ? 0 : bound < 0 ? bound + *size : bound;
        bound = std::min(place, *size);
      } else if (bound >= std::numeric_limits<int32_t>::max()) {
        bound = std::numeric_limits<int64_t>::max();
      }
    }
  }
  const bool constant = ConstantOf(node.input(Slice::kStarts)) != nullptr &&
                        ConstantOf(node.input(Slice::kEnds)) != nullptr &&
                        ConstantOf(node.input(Slice::kAxes)) != nullptr;
  if (constant && new_starts == *starts && new_ends == *ends && new_axes == *axes) return false;
  std::vector<Value*> inputs = {node.input(0), peephole.Ints("starts", new_starts),
                                peephole.Ints("ends", new_ends), peephole.Ints("axes", new_axes)};
  const bool unit =
      !steps.has_value() || std::ranges::all_of(*steps, [](int64_t step) { return step == 1; });
  if (!unit) inputs.push_back(peephole.Ints("steps", *steps));
  return peephole.ReplaceByNode(node, "Slice", std::move(inputs));
}

}  // namespace pagefuse
