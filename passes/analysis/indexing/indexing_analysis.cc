// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/analysis/indexing/indexing_analysis.h"

#include <algorithm>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/infer/symbolic_arithmetic.h"

namespace pagefuse {
namespace {

bool IsOne(const Dim& dim) { return ProvablyEqual(dim, Dim(1)); }

// An index at an axis of length 1 is 0, whatever it was.
void DropUnitAxes(Element& element) {
  const auto& shape = element.value->shape();
  if (!shape || shape->rank() != static_cast<int>(element.at.size())) return;
  for (int axis = 0; axis < shape->rank(); ++axis) {
    if (IsOne((*shape)[axis])) element.at[axis] = IndexExpr();
  }
}

// The index, known to run over an axis of length `dim` too: two symbols meet in an elementwise op
// or an Expand, which are as long as each other where neither is 1.
IndexExpr AlsoOver(const IndexExpr& index, const Dim& dim) {
  const IndexSymbolPtr axis = index.symbol();
  if (!axis || axis->kind != IndexSymbol::Kind::kAxis || !dim.known() ||
      ProvablyEqual(axis->extent, dim)) {
    return index;
  }
  std::vector<Dim> lengths = axis->also_extent;
  lengths.push_back(dim);
  return IndexExpr::Of(MakeAxis(axis->key, axis->extent, std::move(lengths)));
}

}  // namespace

std::string Element::Key() const { return MakeLoad(value, at)->key; }

bool Element::Mentions(const IndexSymbolPtr& symbol) const {
  return std::any_of(at.begin(), at.end(),
                     [&](const IndexExpr& index) { return index.Mentions(symbol->key); });
}

IndexSymbolPtr IndexingAnalysis::NewAxis(const Dim& extent, std::vector<Dim> also_extent) {
  return MakeAxis(StrCat("i", num_axes_++), extent, std::move(also_extent));
}

absl::StatusOr<Element> IndexingAnalysis::Places(Value* value) {
  if (!value->shape()) {
    return absl::InvalidArgumentError(StrCat("\"", value->name(), "\": its rank is not known"));
  }
  Element element{value, {}};
  for (const Dim& dim : value->shape()->dims()) {
    element.at.push_back(IsOne(dim) ? IndexExpr() : IndexExpr::Of(NewAxis(dim)));
  }
  return element;
}

absl::StatusOr<Element> IndexingAnalysis::Whole(Value* value) {
  PF_ASSIGN_OR_RETURN(const Element element, Places(value));
  const auto& dims = value->shape()->dims();
  if (std::ranges::all_of(dims, [](const Dim& dim) { return dim.known(); })) return element;
  return absl::InvalidArgumentError(
      StrCat("\"", value->name(), "\": its shape ", value->shape()->ToString(), " is not known"));
}

Element IndexingAnalysis::Source(Element element) {
  DropUnitAxes(element);
  while (element.producer() != nullptr && !StopsAt(element)) {
    const Node* node = element.producer();
    if (nesting_ > 0) CountStep();
    if (!Step(element)) break;
    visited_.insert(node);
    DropUnitAxes(element);
  }
  return element;
}

bool IndexingAnalysis::StopsAt(const Element& element) const {
  if (all_steps_ > kMostStepsInAll || (nesting_ > 0 && GaveUp())) return true;
  size_t length = 0;
  for (const IndexExpr& index : element.at) length += index.Length();
  return length > kLongestForm;
}

Element IndexingAnalysis::OneStep(Element element) {
  DropUnitAxes(element);
  Node* node = element.producer();
  if (node && Step(element)) visited_.insert(node);
  DropUnitAxes(element);
  return element;
}

Dim IndexingAnalysis::Meant(const Dim& length) const {
  return sizes_.empty() ? length : length.Substitute(sizes_);
}

IndexExpr IndexingAnalysis::Broadcast(const IndexExpr& index, const Dim& operand,
                                      const Dim& result) {
  // One row is the same for all, whatever an exporter may be trusted with.
  if (IsOneOrNone(operand)) return IndexExpr(0);
  if (trust_ == Trust::kExporter) return AlsoOver(index, operand);
  if (ProvablyEqual(Meant(operand), Meant(result)) || index.number() == 0) return index;
  IndexSymbolPtr axis = index.symbol();
  if (!axis || axis->kind != IndexSymbol::Kind::kAxis)
    return IndexExpr::Of(NewAxis(Dim::Unknown()));
  // Of what is repeated to one length and that to another, the first is as long as the last or 1.
  if (IsPart(*axis)) axis = axis->args[0].symbol();
  if (ProvablyEqual(Meant(axis->extent), Meant(operand))) return IndexExpr::Of(axis);
  const Dim length = Meant(operand);
  const std::string name = length.known() ? length.ToString() : StrCat("?", num_axes_++);
  return IndexExpr::Of(MakePart(axis, length, name));
}

bool IndexingAnalysis::IsCertain(const IndexExpr& index) const {
  const IndexSymbolPtr axis = index.symbol();
  return trust_ == Trust::kExporter || !axis || !IsPart(*axis) || axis->extent.known();
}

namespace {

// True if no operand but `index` is longer than 1 along an axis, counted from the last one.
bool OthersAreUnits(const Node& node, int index, int from_last) {
  for (int i = 0; i < node.num_inputs(); ++i) {
    if (i == index || !node.input(i)) continue;
    const auto& shape = node.input(i)->shape();
    if (!shape || (from_last < shape->rank() && !IsOne(shape->back(from_last)))) return false;
  }
  return true;
}

}  // namespace

Element IndexingAnalysis::Operand(const Element& element, int index) {
  const Node& node = *element.producer();
  Visit(node);
  Element operand{node.input(index), {}};
  // An input that is left out says no more than the result does.
  if (operand.value == nullptr) return element;
  const auto& shape = operand.value->shape();
  const auto& result = element.value->shape();
  const int rank = shape ? shape->rank() : static_cast<int>(element.at.size());
  const int missing = static_cast<int>(element.at.size()) - rank;
  for (int axis = 0; axis < rank; ++axis) {
    const IndexExpr at = axis + missing < 0 ? IndexExpr() : element.at[axis + missing];
    const bool alone = trust_ == Trust::kNothing && OthersAreUnits(node, index, rank - 1 - axis);
    const bool known = result && axis + missing >= 0 && axis + missing < result->rank();
    const Dim length = known ? (*result)[axis + missing] : Dim::Unknown();
    operand.at.push_back(shape && !alone ? Broadcast(at, (*shape)[axis], length) : at);
  }
  return Source(operand);
}

}  // namespace pagefuse
