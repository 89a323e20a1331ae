// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/edit/slice_cuts.h"

#include <numeric>

#include "pagefuse/passes/edit/ports.h"

namespace pagefuse {
namespace {

using ports::Slice;

// An input of as many numbers as there are cuts, or `absent` where it is left out.
std::optional<std::vector<int64_t>> Listed(const Node& node, Slice::In port,
                                           std::vector<int64_t> absent,
                                           const SymbolicContents& contents) {
  if (!node.input(port)) return absent;
  auto numbers = KnownInts(node.input(port), contents);
  if (!numbers || numbers->size() != absent.size()) return std::nullopt;
  return numbers;
}

}  // namespace

std::optional<std::vector<SliceCut>> CutsOfSlice(const Node& node,
                                                 const SymbolicContents& contents) {
  if (!node.Is("Slice") || !node.input(Slice::kData)->shape()) return std::nullopt;
  const auto starts = KnownDims(node.input(Slice::kStarts), contents);
  const auto ends = KnownDims(node.input(Slice::kEnds), contents);
  if (!starts && !ends) return std::nullopt;
  const size_t count = starts ? starts->size() : ends->size();
  std::vector<int64_t> in_order(count);
  std::iota(in_order.begin(), in_order.end(), 0);
  const auto axes = Listed(node, Slice::kAxes, in_order, contents);
  const auto steps = Listed(node, Slice::kSteps, std::vector<int64_t>(count, 1), contents);
  if (!axes || !steps || (starts && ends && starts->size() != ends->size())) return std::nullopt;
  std::vector<SliceCut> cuts;
  const int rank = node.input(Slice::kData)->shape()->rank();
  for (size_t i = 0; i < count; ++i) {
    const int64_t axis = NormalAxis((*axes)[i], rank);
    if (axis < 0 || axis >= rank) return std::nullopt;
    cuts.push_back({static_cast<int>(axis), starts ? (*starts)[i] : Dim(),
                    ends ? (*ends)[i] : Dim(), (*steps)[i]});
  }
  return cuts;
}

std::optional<SliceCut> OnlyCut(const Node& node, const SymbolicContents& contents) {
  const auto cuts = CutsOfSlice(node, contents);
  if (!cuts || cuts->size() != 1 || cuts->front().step != 1) return std::nullopt;
  return cuts->front();
}

}  // namespace pagefuse
