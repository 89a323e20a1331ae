// SPDX-License-Identifier: Apache-2.0
// Reads which pairs of channels a subgraph rotates, element by element.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/passes/analysis/indexing/indexing_analysis.h"
#include "pagefuse/passes/analysis/indexing/layout.h"
#include "pagefuse/passes/edit/graph_builder.h"

namespace pagefuse {

// One reading of y = x * c + t * s.
struct RotationTerms {
  Value* x = nullptr;
  Value* cos = nullptr;  // widened
  Value* turned = nullptr;
  Value* sin = nullptr;  // widened
};

// A table [B or 1, S, R/2], whether all sequences share it, and the axis of x that is S.
struct RotationTable {
  Element row;
  Element shown;  // the same before it was gathered from a constant
  bool shared = false;
  int tokens = 2;
};

struct Rotation {
  Element x;  // at the place of y, its last axis a channel
  RotationTable cos, sin;
  bool interleaved = true;
  bool heads_are_behind() const { return cos.tokens == 1; }
};

// Which parts of constant tables were compared, and whether they hold the same numbers.
using EqualColumns = std::map<std::string, bool>;

// Reads values of one shape of rank 4, [B, H, S, R] or [B, S, H, R], R even and known.
class RotationReader {
 public:
  RotationReader(const Shape& shape, const SymbolicContents& contents, EqualColumns& equal_columns);

  // y = x * c + t * s; nullopt if the terms are no rotation of pairs.
  std::optional<Rotation> ReadTerms(const RotationTerms& terms);
  // Both channels of a pair by themselves, a * c - b * s and b * c + a * s, put together somehow.
  std::optional<Rotation> ReadPairs(Value* y);

  // The table as the op takes it, whose sizes are read off `sizes`; what is rotated, of the shape.
  absl::StatusOr<Value*> ArrangedTable(GraphBuilder& builder, const RotationTable& table,
                                       std::vector<Value*> sizes);
  absl::StatusOr<Value*> ArrangedRows(GraphBuilder& builder, const Rotation& rotation);

 private:
  struct Product {
    Element number, factor;
    Element operand;  // what the node takes for the number
  };

  AxisSymbols Axis(int axis) const;
  IndexExpr Channel(int of_pair) const;
  Element Placed(Value* value, int of_pair) const;
  Element At(Value* value, int of_pair) { return reader_.Source(Placed(value, of_pair)); }
  Element Shown(Value* value);
  bool IsTurned(const RotationTerms& terms);
  bool AreSame(const Element& a, const Element& b);
  bool HoldTheSame(const Element& a, const Element& b);
  std::optional<RotationTable> ReadTable(const Element& first, const Element& second,
                                         const Element& shown);
  std::vector<Product> ProductsOf(const Element& element);
  bool IsCrossedSum(const Element& sum, const Product& straight, const Product& crossed);
  std::optional<Rotation> ReadProducts(const Element& first, const Element& second);
  std::optional<Element> WholeOf(const Product& first, const Product& second);
  std::optional<Element> WholeSource(const Element& first, const Element& second);
  std::vector<Value*> RowsBehind(Element operand, int of_pair);

  const Shape shape_;
  IndexingAnalysis reader_;
  std::vector<IndexExpr> at_;  // of the axes before the channels
  IndexSymbolPtr pair_, channel_;
  IndexExpr pair_at_;
  AxisSymbols pairs_;
  bool interleaved_ = true;
  EqualColumns& equal_columns_;
  int compared_ = 0;  // pairs of elements, by AreSame
};

}  // namespace pagefuse
