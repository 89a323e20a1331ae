// SPDX-License-Identifier: Apache-2.0
// Sums along an axis read as index forms: how many places fulfil a condition, or the few numbers of a
// short axis.
#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/analysis/indexing/indexing_analysis.h"
#include "pagefuse/passes/edit/graph_edit.h"

namespace pagefuse {
namespace {

// What an axis counts whose places are compared with a number that does not depend on them: as many
// as are below it. Nullopt if that may be fewer than none or more than all.
std::optional<IndexExpr> ClosedCount(const IndexSymbol& count) {
  if (count.args.size() != 2) return std::nullopt;
  const IndexSymbolPtr axis = count.args[0].symbol();
  const IndexExpr below = count.args[1] + IndexExpr::Of(axis) + IndexExpr(1);
  const bool bounded =
      !below.Mentions(axis->key) && below.ProvablyIn(Dim(0), axis->extent + Dim(1));
  return bounded ? std::optional<IndexExpr>(below) : std::nullopt;
}

}  // namespace

Element Reduced::At(const Element& result, const IndexExpr& place) const {
  Element element{value, result.at};
  if (IntOr(*result.producer(), "keepdims", 1) != 0) {
    element.at[axis] = place;
  } else {
    element.at.insert(element.at.begin() + axis, place);
  }
  return element;
}

std::optional<Reduced> ReducedBy(const Node& node, const SymbolicContents& contents) {
  const auto& shape = node.input(0)->shape();
  if (!shape || node.attribute("axes")) return std::nullopt;
  auto axes = KnownInts(node.input(1), contents);
  // Without axes all are reduced.
  const bool is_whole = !node.input(1) && IntOr(node, "noop_with_empty_axes", 0) == 0;
  if (is_whole && shape->rank() == 1) axes = {0};
  if (!axes || axes->size() != 1) return std::nullopt;
  const int axis = static_cast<int>(NormalAxis(axes->front(), shape->rank()));
  return Reduced{node.input(0), axis, (*shape)[axis]};
}

IndexSymbolPtr IndexingAnalysis::ReadCounted(const Element& element) {
  const auto reduced = ReducedBy(*element.producer(), contents_);
  if (!reduced) return nullptr;
  const IndexSymbolPtr counted = MakeAxis(StrCat("n", depth_), reduced->length);
  ++depth_;
  const IndexExpr summand = ReadIndex(reduced->At(element, IndexExpr::Of(counted)));
  --depth_;
  const IndexSymbolPtr truth = summand.symbol();
  if (!truth || truth->extent != Dim(2)) return nullptr;
  Visit(*element.producer());
  const bool is_truth = truth->kind == IndexSymbol::Kind::kTruth;
  return MakeCount(counted, is_truth ? truth->args : Conditions{summand - IndexExpr(1)});
}

// The sum of a condition along one axis, or of the few numbers of a short one.
std::optional<IndexExpr> IndexingAnalysis::ReadCount(const Element& element) {
  const IndexSymbolPtr count = ReadCounted(element);
  if (!count) return ReadShortSum(element);
  const std::optional<IndexExpr> closed = ClosedCount(*count);
  return closed ? *closed : IndexExpr::Of(count);
}

std::optional<IndexExpr> IndexingAnalysis::ReadShortSum(const Element& element) {
  constexpr int64_t kMost = 4;
  const auto reduced = ReducedBy(*element.producer(), contents_);
  if (!reduced || !reduced->length.known()) return std::nullopt;
  // The same number everywhere.
  const IndexSymbolPtr any = MakeAxis(StrCat("n", depth_), reduced->length);
  ++depth_;
  const IndexExpr each = ReadIndex(reduced->At(element, IndexExpr::Of(any)));
  --depth_;
  if (each.number()) return each.Times(reduced->length);
  const auto length = reduced->length.constant();
  if (!length || *length > kMost) return std::nullopt;
  Visit(*element.producer());
  IndexExpr sum;
  for (int64_t place = 0; place < *length; ++place) {
    sum = sum + ReadIndex(reduced->At(element, IndexExpr(place)));
  }
  return sum;
}

// The running sum of a number that is the same everywhere.
std::optional<IndexExpr> IndexingAnalysis::ReadRunningSum(const Element& element) {
  const Node& node = *element.producer();
  const auto axes = KnownInts(node.input(1), contents_);
  const IndexExpr step = OperandIndex(element, 0);
  if (!axes || axes->size() != 1 || !step.number()) return std::nullopt;
  const auto axis = NormalAxis(axes->front(), static_cast<int64_t>(element.at.size()));
  IndexExpr place = element.at[axis];
  if (IntOr(node, "reverse", 0) != 0) {
    const auto& shape = element.value->shape();
    if (!shape) return std::nullopt;
    place = IndexExpr((*shape)[static_cast<int>(axis)] - Dim(1)) - place;
  }
  if (IntOr(node, "exclusive", 0) == 0) place = place + IndexExpr(1);
  return place.Times(step.constant());
}

}  // namespace pagefuse
