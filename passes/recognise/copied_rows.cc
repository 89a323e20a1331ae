// SPDX-License-Identifier: Apache-2.0
// copied-rows: repeats rows along an axis of their own where a Gather repeats each of them, so that
// the shape shows which copies belong to which row:
//
//   x [M, H] -- Gather by 0, 0, .., 1, 1, .., as arange -- Unsqueeze -- Expand -- Reshape makes them
//     =>  Unsqueeze [M, 1, H] -- Expand [M, R, H] -- Reshape [M * R, H]
//
// Rows are read by element: row t of the copies is row t / R of x, however its index is computed.
#include <optional>

#include "pagefuse/passes/analysis/indexing/indexing_analysis.h"
#include "pagefuse/passes/edit/graph_builder.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/function_pass.h"
#include "pagefuse/passes/recognise/recognise.h"

namespace pagefuse {
namespace {

bool GathersRows(const Node& node) {
  const auto& shape = node.Is("Gather") ? node.input(0)->shape() : std::nullopt;
  const auto& index = node.Is("Gather") ? node.input(1)->shape() : std::nullopt;
  return shape && index && shape->rank() == 2 && index->rank() == 1 &&
         IntOr(node, "axis", 0) == 0 && (*shape)[1].is_constant() &&
         ConstantOf(node.input(0)) == nullptr;
}

// How often each row stands in the index; nullopt if it is no such index.
std::optional<int64_t> Repeats(Value* index, const SymbolicContents& contents) {
  IndexingAnalysis reader(contents);
  const absl::StatusOr<Element> whole = reader.Whole(index);
  if (!whole.ok() || whole->at.size() != 1) return std::nullopt;
  const IndexSymbolPtr place = whole->at[0].symbol();
  const IndexSymbolPtr quotient = reader.ReadIndex(*whole).symbol();
  const bool divides = place && quotient && quotient->kind == IndexSymbol::Kind::kDiv &&
                       quotient->args[0].Key() == IndexExpr::Of(place).Key();
  const auto repeat = divides ? quotient->divisor.constant() : std::nullopt;
  return repeat && *repeat > 1 ? repeat : std::nullopt;
}

absl::StatusOr<bool> Rewrite(Graph& graph, Node* node, const SymbolicContents& contents) {
  if (!GathersRows(*node)) return false;
  const std::optional<int64_t> repeat = Repeats(node->input(1), contents);
  const Shape& rows = *node->input(0)->shape();
  if (!repeat || !ProvablyEqual(rows[0] * Dim(*repeat), (*node->input(1)->shape())[0]))
    return false;
  GraphBuilder builder(graph, node, node->output(0)->name());
  Value* once = builder.Add("Unsqueeze", {node->input(0), builder.Ints({1})});
  Value* each = builder.Add("Expand", {once, builder.Ints({1, *repeat, 1})});
  Value* copies = builder.Add("Reshape", {each, builder.Ints({-1, *rows[1].constant()})});
  if (!ReplaceValue(graph, node->output(0), copies)) return false;
  graph.EraseIfDead(node);
  return true;
}

}  // namespace

std::unique_ptr<Pass> RecogniseCopiedRows() {
  return MakeNodePass(
      "copied-rows",
      "Rewrites Gathers that repeat each row several times as an Expand along a new axis.",
      Rewrite);
}

}  // namespace pagefuse
