// SPDX-License-Identifier: Apache-2.0
// Makes the views and transposes between the layout in which elements are stored and the layout
// that an op expects.
#pragma once

#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/passes/analysis/indexing/indexing_analysis.h"
#include "pagefuse/passes/edit/graph_builder.h"

namespace pagefuse {

// Symbols that make up one axis together, the slowest first; none: an axis of length 1.
using AxisSymbols = std::vector<IndexSymbolPtr>;
// The symbol that an index is; none if it is another form.
inline AxisSymbols SymbolOf(const IndexExpr& index) {
  const IndexSymbolPtr symbol = index.symbol();
  return symbol ? AxisSymbols{symbol} : AxisSymbols{};
}

class Layout {
 public:
  // Sizes are read off `sizes` where they are symbols.
  Layout(GraphBuilder& builder, std::vector<Value*> sizes)
      : builder_(builder), sizes_(std::move(sizes)) {}

  // A tensor with these axes of what `element` shows when its symbols run. FailedPrecondition if it
  // depends on other symbols than those, not on all of them, or on a part of its tensor alone.
  absl::StatusOr<Value*> Gathered(const Element& element, const std::vector<AxisSymbols>& axes);
  // The same of an element that runs over a part of axes of known lengths.
  absl::StatusOr<Value*> GatheredPart(Element element, const std::vector<AxisSymbols>& axes);
  // The same of an element that also stands at rows which another tensor of integers holds, or at a
  // part of the rows of a table: those are gathered.
  absl::StatusOr<Value*> GatheredRows(Element element, const std::vector<AxisSymbols>& axes);
  // The way back: `value`, whose axes are `axes`, as `element` shows it (its value gives the
  // shape).
  absl::StatusOr<Value*> Spread(Value* value, const std::vector<AxisSymbols>& axes,
                                const Element& element);
  absl::StatusOr<Value*> Reshaped(Value* value, const std::vector<Dim>& dims);
  // A size as an int64 scalar.
  absl::StatusOr<Value*> Size(const Dim& dim);
  // Sizes as a vector.
  absl::StatusOr<Value*> Sizes(const std::vector<Dim>& dims);
  // `value` as int32.
  Value* AsInt32(Value* value);

 private:
  absl::StatusOr<Value*> SizeVector(const Dim& dim);
  void Cut(Element& element, int axis);
  void DropUnitAxes(Element& element);
  absl::Status GatherRows(Element& element, int axis, const std::vector<AxisSymbols>& axes);

  GraphBuilder& builder_;
  std::vector<Value*> sizes_;
};

// The symbols of an index, the slowest first, with their lengths on an axis of length `dim`:
// `b * 4 + s` is {b, s}. FailedPrecondition if it is no such number.
struct Digits {
  AxisSymbols symbols;
  std::vector<Dim> lengths;
};
absl::StatusOr<Digits> DigitsOf(const IndexExpr& index, const Dim& dim);

}  // namespace pagefuse
