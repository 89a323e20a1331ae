// SPDX-License-Identifier: Apache-2.0
// tables-by-sequence: reshapes a block table to one row for each sequence, where an exporter counts
// its rows by another symbol than the sequences that read them.
//
//   rows = Reshape (Gather (pool, table [T, M]), [B, -1, D])
//     =>  by_sequence = Reshape (table, [B, -1])
//         rows = Reshape (Gather (pool, by_sequence), [B, -1, D])
//
// The same rows in the same order, whatever T is. Lengths that the exporter derived from the rows
// of the table, `8 * T // B`, are then read off the new table as well: only so is a mask provably
// as long as what it hides. Where a sequence would begin inside a block, the new view is refused as
// a run, and nothing over whole blocks could compute it.
#include <optional>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/passes/edit/graph_builder.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/function_pass.h"
#include "pagefuse/passes/recognise/recognise.h"

namespace pagefuse {
namespace {

// A table whose rows are counted by `rows` and read by sequences counted by `batch`.
struct TableUse {
  Node* gather = nullptr;
  Node* reshape = nullptr;
  Value* sequences = nullptr;  // an input whose first axis is `batch`
  Dim rows, batch;
  int64_t columns = 0;  // blocks in a row of the table
  int64_t block = 0;    // tokens in a block
};

// A graph input that has `dim` in front; null if there is none.
Value* InputBy(const Graph& graph, const Dim& dim) {
  for (Value* input : graph.inputs()) {
    const auto& shape = input->shape();
    if (shape && shape->rank() > 0 && ProvablyEqual((*shape)[0], dim)) return input;
  }
  return nullptr;
}

// Indices [T, M], or [T, M, 1] for GatherND, of blocks of a pool [N, block, ...].
bool GathersBlocks(const Node& gather) {
  const auto& indices = gather.input(1)->shape();
  const auto& pool = gather.input(0)->shape();
  if (!indices || !pool || pool->rank() < 2) return false;
  if (gather.Is("Gather")) return IntOr(gather, "axis", 0) == 0 && indices->rank() == 2;
  return gather.Is("GatherND") && IntOr(gather, "batch_dims", 0) == 0 && indices->rank() == 3 &&
         indices->back(0).constant() == 1;
}

std::optional<TableUse> FindUse(Node& reshape, const SymbolicContents& contents) {
  if (!reshape.Is("Reshape")) return std::nullopt;
  Node* gather = reshape.input(0)->producer();
  if (!gather || !(gather->Is("Gather") || gather->Is("GatherND"))) return std::nullopt;
  if (!GathersBlocks(*gather)) return std::nullopt;
  const auto sizes = KnownDims(reshape.input(1), contents);
  if (!sizes || sizes->size() < 2) return std::nullopt;
  const Shape& indices = *gather->input(1)->shape();
  TableUse use{gather, &reshape, nullptr, indices[0], (*sizes)[0], 0, 0};
  if (!use.rows.symbol() || !use.batch.symbol() || use.rows == use.batch) return std::nullopt;
  use.sequences = InputBy(*reshape.graph(), use.batch);
  if (!use.sequences || !InputBy(*reshape.graph(), use.rows)) return std::nullopt;
  use.columns = indices[1].constant().value_or(0);
  use.block = (*gather->input(0)->shape())[1].constant().value_or(0);
  if (use.columns <= 0 || use.block <= 0) return std::nullopt;
  return use;
}

// The table by sequence, [B, -1] (or [B, -1, 1]), and the gather and reshape that read it.
Value* LayOut(Graph& graph, const TableUse& use) {
  GraphBuilder builder(graph, use.gather, use.gather->output(0)->name());
  Value* indices = use.gather->input(1);
  std::vector<int64_t> rest(indices->shape()->rank() - 1, 1);
  rest[0] = -1;
  Value* sizes =
      builder.Add("Concat", {builder.Size(use.sequences, 0), builder.Ints(rest)}, {{"axis", 0}});
  Value* table = builder.Add("Reshape", {indices, sizes});
  Node* gather = builder.AddNode("", use.gather->op_type(), {use.gather->input(0), table}, 1);
  use.reshape->SetInput(0, gather->output(0));
  graph.EraseIfDead(use.gather);
  return table;
}

// Lets readers of blocks or tokens a sequence, counted by the rows of the old table, count them by
// the new one.
void CountByTable(Graph& graph, const TableUse& use, Value* table,
                  const SymbolicContents& contents) {
  for (Node* node : NodesOf(graph)) {
    const auto known = KnownDims(node->output(0), contents);
    if (!known || known->size() != 1 || !node->output(0)->shape()) continue;
    for (const int64_t each : {int64_t{1}, use.block}) {
      const Dim length = (use.rows * Dim(use.columns * each)).FloorDiv(use.batch);
      if (!ProvablyEqual((*known)[0], length)) continue;
      GraphBuilder builder(graph, node, node->output(0)->name());
      Value* count = builder.Size(table, 1);
      if (each != 1) count = builder.Add("Mul", {count, builder.Ints({each})});
      if (node->output(0)->shape()->rank() == 0) {
        count = builder.Add("Squeeze", {count, builder.Ints({0})});
      }
      if (node->output(0)->dtype() != DataType::kInt64) {
        count = builder.Cast(count, node->output(0)->dtype());
      }
      ReplaceValue(graph, node->output(0), count);
      break;
    }
  }
}

absl::StatusOr<bool> Rewrite(Graph& graph, Node* node, const SymbolicContents& contents) {
  const auto use = FindUse(*node, contents);
  if (!use) return false;
  Value* table = LayOut(graph, *use);
  CountByTable(graph, *use, table, contents);
  PF_RETURN_IF_ERROR(graph.SortTopologically());
  return true;
}

}  // namespace

std::unique_ptr<Pass> TablesBySequence() {
  return MakeNodePass(
      "tables-by-sequence",
      "Reshapes a block table to one row for each sequence where the exporter counts its rows "
      "by another symbol.",
      Rewrite);
}

}  // namespace pagefuse
