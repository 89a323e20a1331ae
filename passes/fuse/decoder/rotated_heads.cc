// SPDX-License-Identifier: Apache-2.0
// rotated-heads: splits rows into heads before they are rotated, as the op that fuses rotation and
// cache insert takes them.
//
//   x [1, T, H * D] -- RotaryEmbedding -- Reshape [T, H, D]
//     =>  x -- Reshape [T, H, D] -- Reshape [1, T, H * D] -- RotaryEmbedding -- Reshape [T, H, D]
//
// The views cost nothing, and tidying takes them away where nothing fuses.

#include "pagefuse/passes/edit/graph_builder.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/ports.h"
#include "pagefuse/passes/edit/readers_text.h"
#include "pagefuse/passes/function_pass.h"
#include "pagefuse/passes/fuse/fuse.h"
#include "pagefuse/passes/rewrite/pattern.h"

namespace pagefuse {
namespace {

bool HasRank(const Value* value, int rank) {
  return value != nullptr && value->shape() && value->shape()->rank() == rank;
}

// True if the rows that leave the rotation are read as heads [T, H, D] alone.
bool IsReadAsHeads(const Value& rotated, int64_t heads) {
  const Node* view = OnlyReader(rotated);
  return view && view->Is("Reshape") && HasRank(view->output(0), 3) &&
         (*view->output(0)->shape())[1].constant() == heads;
}

absl::StatusOr<bool> Rewrite(Graph& graph, Node* node, const SymbolicContents& /*contents*/) {
  const int64_t heads = IntOr(*node, "num_heads", 0);
  Value* rows = node->input(0);
  const bool rotates = node->Is("RotaryEmbedding") && heads > 0 && HasRank(rows, 3) &&
                       node->input(ports::RotaryEmbedding::kPositions) == nullptr;
  if (!rotates || !IsReadAsHeads(*node->output(0), heads)) return false;
  const Shape& shape = *rows->shape();
  const auto columns = shape[2].constant();
  const bool packed = shape[0].constant() == 1 && columns && *columns % heads == 0;
  if (!packed || (rows->producer() != nullptr && IsViewNode(*rows->producer()))) return false;
  GraphBuilder builder(graph, node, rows->name());
  Value* split = builder.Add("Reshape", {rows, builder.Ints({-1, heads, *columns / heads})});
  node->SetInput(0, builder.Add("Reshape", {split, builder.Ints({1, -1, *columns})}));
  return true;
}

}  // namespace

std::unique_ptr<Pass> RotatedHeads() {
  return MakeNodePass(
      "rotated-heads",
      "Moves the Reshape of rows into heads before their rotation, where fuse-rope-quant "
      "expects it.",
      Rewrite);
}

}  // namespace pagefuse
