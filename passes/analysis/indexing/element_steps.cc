// SPDX-License-Identifier: Apache-2.0
// Nodes that move elements: where the element that one of them gives lies in its input.
#include <algorithm>

#include "pagefuse/ops/infer/symbolic_arithmetic.h"
#include "pagefuse/passes/analysis/indexing/indexing_analysis.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/ports.h"
#include "pagefuse/passes/edit/slice_cuts.h"
#include "pagefuse/passes/rewrite/pattern.h"

namespace pagefuse {
namespace {

bool IsOne(const Dim& dim) { return ProvablyEqual(dim, Dim(1)); }

// True if one of the axes from `first` to `end` is none of length 1.
bool IsOneAxis(const Shape& shape, int first, int end) {
  const auto& dims = shape.dims();
  return std::count_if(dims.begin() + first, dims.begin() + end,
                       [](const Dim& dim) { return !IsOne(dim); }) == 1;
}

// Indices of `from` of the element that a view shows at `at` of `to`: axes are taken together
// from the left as far as their products differ.
class ViewReader {
 public:
  ViewReader(const Shape& from, const Shape& to, const std::vector<IndexExpr>& at)
      : from_(from), to_(to), at_(at) {}

  bool Read(std::vector<IndexExpr>& result) {
    while (i_ < from_.rank() || j_ < to_.rank()) {
      if (!SkipUnitAxis(result) && !ReadGroup(result)) return false;
    }
    return true;
  }

 private:
  // Axes of length 1 belong to no group: beside a symbol, which may be 1 itself, they would take
  // all that is left into one.
  bool SkipUnitAxis(std::vector<IndexExpr>& result) {
    if (j_ < to_.rank() && IsOne(to_[j_])) {
      ++j_;
      return true;
    }
    if (i_ == from_.rank() || !IsOne(from_[i_])) return false;
    ++i_;
    result.emplace_back();
    return true;
  }

  bool ReadGroup(std::vector<IndexExpr>& result) {
    const int first = i_;
    const int first_of_theirs = j_;
    IndexExpr linear;
    Dim ours(1);
    Dim theirs(1);
    const auto take_ours = [&] { ours = ours * from_[i_++]; };
    const auto take_theirs = [&] {
      linear = linear.Times(to_[j_]) + at_[j_];
      theirs = theirs * to_[j_++];
    };
    if (i_ < from_.rank()) take_ours();
    if (j_ < to_.rank()) take_theirs();
    while (!ProvablyEqual(ours, theirs)) {
      const Dim missing = ours - theirs;
      const bool ours_smaller = ProvablyNotNegative(missing * Dim(-1));
      if (!ours_smaller && !ProvablyNotNegative(missing)) {
        // Neither is known to be less: all that is left is one group.
        if (i_ < from_.rank()) {
          take_ours();
        } else if (j_ < to_.rank()) {
          take_theirs();
        } else if (IsOneAxis(from_, first, i_) && IsOneAxis(to_, first_of_theirs, j_)) {
          break;  // as long as each other, because all before them is
        } else {
          return false;
        }
        continue;
      }
      if (ours_smaller && i_ < from_.rank()) {
        take_ours();
      } else if (!ours_smaller && j_ < to_.rank()) {
        take_theirs();
      } else {
        return false;
      }
    }
    Split(linear, first, result);
    return true;
  }

  // The indices of the axes from `first` to i_ from their place among all elements of the group.
  void Split(IndexExpr linear, int first, std::vector<IndexExpr>& result) {
    std::vector<IndexExpr> indices(i_ - first);
    for (int axis = i_ - 1; axis > first; --axis) {
      std::tie(linear, indices[axis - first]) = DivMod(linear, from_[axis]);
    }
    if (!indices.empty()) indices[0] = linear;
    result.insert(result.end(), indices.begin(), indices.end());
  }

  const Shape& from_;
  const Shape& to_;
  const std::vector<IndexExpr>& at_;
  int i_ = 0;
  int j_ = 0;
};

// The axes of a ScatterND whose places are given by indices, each by an axis of its own; 0 if they are
// given in another way.
int OverwrittenAxes(const Node& scatter) {
  const auto& grid = scatter.input(ports::ScatterND::kIndices)->shape();
  const bool sets = StringOr(scatter, "reduction", "none") == "none";
  const bool known = scatter.input(0)->shape() &&
                     scatter.input(ports::ScatterND::kUpdates)->shape() && grid && grid->rank() > 1;
  const bool by_axis = known && grid->back(0).constant() == grid->rank() - 1;
  return sets && by_axis ? grid->rank() - 1 : 0;
}

// The places along an axis that are overwritten, from the first one to the end; nullopt if they do not
// follow one another, or depend on those along other axes.
std::optional<std::pair<Dim, Dim>> OverwrittenAlong(IndexingAnalysis& reader, const Node& scatter,
                                                    int axis, int width) {
  const Shape& updates = *scatter.input(ports::ScatterND::kUpdates)->shape();
  Element index{scatter.input(ports::ScatterND::kIndices), {}};
  for (int i = 0; i < width; ++i) {
    index.at.push_back(IsOne(updates[i]) ? IndexExpr() : IndexExpr::Of(reader.NewAxis(updates[i])));
  }
  const IndexExpr place = index.at[axis];
  index.at.emplace_back(axis);
  const IndexExpr first = reader.ReadIndex(index) - place;
  const Dim &begin = first.constant(), &all = (*scatter.input(0)->shape())[axis];
  // A range up to the last place has none where the tensor is that short.
  const bool to_the_end = ProvablyEqual(updates[axis], all - DimMin(begin, all));
  const Dim end = to_the_end ? all : begin + updates[axis];
  if (!first.is_constant() || !ProvablyNotNegative(begin) || !end.known()) return std::nullopt;
  return std::pair(begin, end);
}

}  // namespace

bool IndexingAnalysis::Step(Element& element) {
  const Node& node = *element.producer();
  if (node.Is("Identity")) {
    element.value = node.input(0);
    return true;
  }
  if (node.Is("Transpose")) return StepTranspose(element);
  if (IsViewNode(node)) return StepView(element);
  if (node.Is("Expand")) return StepExpand(element);
  if (node.Is("Tile")) return StepTile(element);
  if (node.Is("Slice")) return StepSlice(element);
  if (node.Is("Split")) return StepSplit(element);
  if (node.Is("Gather")) return StepGather(element);
  if (node.Is("GatherND")) return StepGatherND(element);
  if (node.Is("GatherElements")) return StepGatherElements(element);
  if (node.Is("ScatterND")) return StepScatterND(element);
  if (node.Is("Concat")) return StepConcat(element);
  return false;
}

bool IndexingAnalysis::StepTranspose(Element& element) {
  const Node& node = *element.producer();
  const int rank = static_cast<int>(element.at.size());
  std::vector<int64_t> reversed(rank);
  for (int axis = 0; axis < rank; ++axis) reversed[axis] = rank - 1 - axis;
  const auto perm = node.IntsAttribute("perm", reversed);
  if (!perm.ok() || static_cast<int>(perm->size()) != rank) return false;
  std::vector<IndexExpr> at(rank);
  for (int axis = 0; axis < rank; ++axis) at[(*perm)[axis]] = element.at[axis];
  element = {node.input(0), std::move(at)};
  return true;
}

bool IndexingAnalysis::StepView(Element& element) {
  Value* source = element.producer()->input(0);
  const auto& from = source->shape();
  const auto& to = element.value->shape();
  if (!from || !to || to->rank() != static_cast<int>(element.at.size())) return false;
  std::vector<IndexExpr> at;
  if (!ViewReader(*from, *to, element.at).Read(at)) return false;
  element = {source, std::move(at)};
  return true;
}

bool IndexingAnalysis::StepExpand(Element& element) {
  Value* source = element.producer()->input(0);
  const auto& from = source->shape();
  const auto& to = element.value->shape();
  if (!from || !to || to->rank() < from->rank()) return false;
  const int missing = to->rank() - from->rank();
  std::vector<IndexExpr> at;
  for (int axis = 0; axis < from->rank(); ++axis) {
    const Dim& dim = (*from)[axis];
    const Dim& length = (*to)[axis + missing];
    const bool differs = dim.constant() && !ProvablyEqual(dim, length);
    if (!IsOne(dim) && (differs || !dim.known())) return false;
    at.push_back(IsOne(dim) ? IndexExpr() : Broadcast(element.at[axis + missing], dim, length));
  }
  element = {source, std::move(at)};
  return true;
}

bool IndexingAnalysis::StepTile(Element& element) {
  const Node& node = *element.producer();
  const auto& from = node.input(0)->shape();
  const auto repeats = KnownDims(node.input(1), contents_);
  if (!from || !repeats || repeats->size() != element.at.size()) return false;
  std::vector<IndexExpr> at = element.at;
  for (int axis = 0; axis < from->rank(); ++axis) {
    const Dim& dim = (*from)[axis];
    if (IsOne((*repeats)[axis]) || IsOne(dim)) continue;
    if (!dim.known()) return false;
    at[axis] = DivMod(at[axis], dim).second;
  }
  element = {node.input(0), std::move(at)};
  return true;
}

bool IndexingAnalysis::StepSlice(Element& element) {
  const Node& node = *element.producer();
  const auto cuts = CutsOfSlice(node, contents_);
  if (!cuts) return false;
  const Shape& from = *node.input(0)->shape();
  std::vector<IndexExpr> at = element.at;
  for (const SliceCut& cut : *cuts) {
    if (!cut.start.known() || cut.step <= 0 || !IsCertain(at[cut.axis])) return false;
    const bool from_end = cut.start.constant() != 0 && ProvablyNotNegative(cut.start * Dim(-1));
    Dim start = from_end ? cut.start + from[cut.axis] : cut.start;
    // One further back than the axis is long begins with it. The last element is there if any is.
    if (from_end && start.constant().value_or(0) < 0) start = Dim(0);
    const bool inside = cut.start.constant() == -1 || ProvablyNotNegative(start);
    if (trust_ == Trust::kNothing && !inside) return false;
    at[cut.axis] = at[cut.axis].Times(Dim(cut.step)) + IndexExpr(start);
  }
  element = {node.input(0), std::move(at)};
  return true;
}

bool IndexingAnalysis::StepSplit(Element& element) {
  const Node& node = *element.producer();
  const auto axis = NormalAxis(IntOr(node, "axis", 0), static_cast<int64_t>(element.at.size()));
  Dim before(0);
  for (int part = 0; part < element.value->producer_index(); ++part) {
    const auto& shape = node.output(part)->shape();
    if (!shape) return false;
    before = before + (*shape)[static_cast<int>(axis)];
  }
  if (!before.known() || !IsCertain(element.at[axis])) return false;
  element.at[axis] = element.at[axis] + IndexExpr(before);
  element.value = node.input(0);
  return true;
}

bool IndexingAnalysis::FromFront(IndexExpr& index, const Dim& length) const {
  const auto number = index.number();
  if (number && *number < 0) {
    index = index + IndexExpr(length);
    return true;
  }
  if (trust_ == Trust::kExporter) return true;
  return IsCertain(index) && ProvablyNotNegative(index.Lower());
}

bool IndexingAnalysis::StepGather(Element& element) {
  const Node& node = *element.producer();
  const auto& from = node.input(0)->shape();
  const auto& indices = node.input(1)->shape();
  if (!from || !indices) return false;
  const auto axis = NormalAxis(IntOr(node, "axis", 0), from->rank());
  const auto first = element.at.begin() + axis;
  const auto last = first + indices->rank();
  std::vector<IndexExpr> at(element.at.begin(), first);
  IndexExpr index = ReadIndex({node.input(1), {first, last}});
  if (!FromFront(index, (*from)[static_cast<int>(axis)])) return false;
  at.push_back(std::move(index));
  at.insert(at.end(), last, element.at.end());
  element = {node.input(0), std::move(at)};
  return true;
}

bool IndexingAnalysis::StepGatherND(Element& element) {
  const Node& node = *element.producer();
  const auto& from = node.input(0)->shape();
  const auto& indices = node.input(1)->shape();
  if (!from || !indices || indices->rank() == 0) return false;
  const int64_t batch = IntOr(node, "batch_dims", 0);
  const auto width = indices->back(0).constant();
  if (!width) return false;
  const auto first = element.at.begin();
  const auto last = first + (indices->rank() - 1);
  std::vector<IndexExpr> at(first, first + batch);
  for (int64_t i = 0; i < *width; ++i) {
    Element place{node.input(1), {first, last}};
    place.at.push_back(IndexExpr(i));
    IndexExpr index = ReadIndex(place);
    if (!FromFront(index, (*from)[static_cast<int>(batch + i)])) return false;
    at.push_back(std::move(index));
  }
  at.insert(at.end(), last, element.at.end());
  element = {node.input(0), std::move(at)};
  return true;
}

bool IndexingAnalysis::StepGatherElements(Element& element) {
  const Node& node = *element.producer();
  const auto axis = NormalAxis(IntOr(node, "axis", 0), static_cast<int64_t>(element.at.size()));
  const auto& from = node.input(0)->shape();
  std::vector<IndexExpr> at = element.at;
  at[axis] = ReadIndex({node.input(1), element.at});
  if (from && !FromFront(at[axis], (*from)[static_cast<int>(axis)])) return false;
  element = {node.input(0), std::move(at)};
  return true;
}

// Places that follow one another along the first axes are overwritten; the others stay.
bool IndexingAnalysis::StepScatterND(Element& element) {
  const Node& node = *element.producer();
  const int width = OverwrittenAxes(node);
  std::vector<Dim> begins;
  bool inside = width > 0;
  for (int axis = 0; axis < width; ++axis) {
    const auto range = OverwrittenAlong(*this, node, axis, width);
    if (!range) return false;
    const auto& [begin, end] = *range;
    const IndexExpr& place = element.at[axis];
    const Dim& length = (*node.input(0)->shape())[axis];
    if (place.ProvablyIn(Dim(0), begin) || place.ProvablyIn(end, length)) {
      element.value = node.input(0);
      return true;
    }
    inside = inside && place.ProvablyIn(begin, end);
    begins.push_back(begin);
  }
  if (!inside) return false;
  for (int axis = 0; axis < width; ++axis)
    element.at[axis] = element.at[axis] - IndexExpr(begins[axis]);
  element.value = node.input(ports::ScatterND::kUpdates);
  return true;
}

bool IndexingAnalysis::StepConcat(Element& element) {
  const Node& node = *element.producer();
  const auto axis = NormalAxis(IntOr(node, "axis", 0), static_cast<int64_t>(element.at.size()));
  Dim before(0);
  for (Value* part : node.inputs()) {
    if (!part->shape()) return false;
    const Dim size = (*part->shape())[static_cast<int>(axis)];
    if (element.at[axis].ProvablyIn(before, before + size)) {
      element.at[axis] = element.at[axis] - IndexExpr(before);
      element.value = part;
      return true;
    }
    before = before + size;
  }
  return StepJoinedParts(element, static_cast<int>(axis));
}

// Parts of one tensor that are joined as they lay in it.
bool IndexingAnalysis::StepJoinedParts(Element& element, int axis) {
  std::optional<Element> same;
  Dim before(0);
  for (Value* part : element.producer()->inputs()) {
    Element here{part, element.at};
    here.at[axis] = here.at[axis] - IndexExpr(before);
    here = Source(here);
    if (same && same->Key() != here.Key()) return false;
    same = here;
    before = before + (*part->shape())[axis];
  }
  if (element.producer()->num_inputs() < 2) return false;
  element = *same;
  return true;
}

}  // namespace pagefuse
