// SPDX-License-Identifier: Apache-2.0
// fuse-repeated-rows: removes the copies of rows that are made for each of their experts;
// GroupedMatMul reads the rows where they are.
//
//   x [M, K] -- Expand or Tile [M, R, K] -- Reshape [M * R, K] -- GroupedMatMul
//     =>  x -- GroupedMatMul <repeat = R>
//
// Rows are read by element: row t of the copies is row t / R of x, however it is written.

#include "pagefuse/passes/analysis/indexing/indexing_analysis.h"
#include "pagefuse/passes/analysis/indexing/layout.h"
#include "pagefuse/passes/edit/graph_builder.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/function_pass.h"
#include "pagefuse/passes/fuse/fuse.h"

namespace pagefuse {
namespace {

bool TakesRowsOfExperts(const Node& node) {
  return node.Is("GroupedMatMul", "pagefuse") && IntOr(node, "repeat", 1) == 1;
}

absl::StatusOr<bool> Rewrite(Graph& graph, Node* node, const SymbolicContents& contents) {
  if (!TakesRowsOfExperts(*node)) return false;
  IndexingAnalysis reader(contents);
  const absl::StatusOr<Element> copy = reader.Whole(node->input(0));
  if (!copy.ok() || copy->at.size() != 2) return false;
  const IndexSymbolPtr row = copy->at[0].symbol(), channel = copy->at[1].symbol();
  if (!row || !channel) return false;
  Element source = reader.Source(*copy);
  // The place of the row, and of how many copies.
  IndexExpr* place = nullptr;
  for (IndexExpr& at : source.at) {
    if (at.Mentions(row->key)) place = place ? nullptr : &at;
  }
  const IndexSymbolPtr quotient = place ? place->symbol() : nullptr;
  const bool is_copied = quotient && quotient->kind == IndexSymbol::Kind::kDiv &&
                         quotient->args[0].Key() == IndexExpr::Of(row).Key();
  const auto repeat = is_copied ? quotient->divisor.constant() : std::nullopt;
  if (!repeat || *repeat < 2) return false;
  const auto axis = static_cast<int>(place - source.at.data());
  const IndexSymbolPtr once = reader.NewAxis((*source.value->shape())[axis]);
  *place = IndexExpr::Of(once);
  GraphBuilder builder(graph, node, node->input(0)->name());
  Layout layout(builder, {source.value});
  const auto rows = layout.Gathered(source, {AxisSymbols{once}, AxisSymbols{channel}});
  if (!rows.ok()) return false;
  node->SetInput(0, *rows);
  node->SetAttribute("repeat", MakeAttribute(*repeat));
  return true;
}

}  // namespace

std::unique_ptr<Pass> FuseRepeatedRows() {
  return MakeNodePass(
      "fuse-repeated-rows",
      "Removes the copies of rows that a GroupedMatMul reads: the op repeats the rows itself.",
      Rewrite);
}

}  // namespace pagefuse
