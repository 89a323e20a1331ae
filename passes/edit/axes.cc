// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/edit/axes.h"

#include <numeric>
#include <utility>

#include "pagefuse/passes/edit/slice_cuts.h"

namespace pagefuse {

std::optional<AxisPart> PartOf(const Value& value, int64_t axis, const SymbolicContents& contents) {
  const Node* node = value.producer();
  const Shape* shape = ShapeOf(&value);
  const auto length =
      shape && axis < shape->rank() ? (*shape)[static_cast<int>(axis)].constant() : std::nullopt;
  if (!node || !length) return std::nullopt;
  if (node->Is("Slice")) {
    const auto cut = OnlyCut(*node, contents);
    const auto begin = cut ? cut->start.constant() : std::nullopt;
    if (!begin || *begin < 0 || cut->axis != axis) return std::nullopt;
    return AxisPart{node->input(0), *begin, *begin + *length};
  }
  if (!node->Is("Split") || NormalAxis(IntOr(*node, "axis", 0), shape->rank()) != axis) {
    return std::nullopt;
  }
  AxisPart part{node->input(0), 0, 0};
  for (int i = 0; i < value.producer_index(); ++i) {
    const Shape* before = node->output(i) ? ShapeOf(node->output(i)) : nullptr;
    const auto taken = before ? (*before)[static_cast<int>(axis)].constant() : std::nullopt;
    if (!taken) return std::nullopt;
    part.begin += *taken;
  }
  part.end = part.begin + *length;
  return part;
}

std::optional<std::vector<int64_t>> PermutationOf(const Node& transpose) {
  if (transpose.attribute("perm") != nullptr) {
    auto perm = transpose.IntsAttribute("perm", {});
    return perm.ok() ? std::optional(*std::move(perm)) : std::nullopt;
  }
  const Shape* shape = ShapeOf(transpose.input(0));
  if (!shape) return std::nullopt;
  std::vector<int64_t> perm(shape->rank());
  std::iota(perm.rbegin(), perm.rend(), 0);
  return perm;
}

}  // namespace pagefuse
