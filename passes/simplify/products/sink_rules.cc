// SPDX-License-Identifier: Apache-2.0
// Sums of values by a softmax that are scaled as a sink would scale them.
//
//   p = Softmax (x)      y = MatMul (p, v) * Sigmoid (ReduceLogSumExp (x) - sink)
//     =>  p = Softmax (Concat (x, sink)), without its last column      y = MatMul (p, v)
//
// With s the sum of exp x: 1 / s * sigmoid (log s - sink) is 1 / (s + exp sink).
#include "pagefuse/passes/analysis/indexing/indexing_analysis.h"
#include "pagefuse/passes/edit/graph_builder.h"
#include "pagefuse/passes/simplify/products/product_rules.h"

namespace pagefuse {
namespace {

constexpr int kRank = 4, kRows = 3;  // [B, H, S, ..], and its axes of rows

// The softmax over the last axis of scores [B, H, S, T] that a product sums values by; null if there
// is none.
const Node* WeightsOf(const Node* sum) {
  const Node* softmax = sum && sum->Is("MatMul") ? sum->input(0)->producer() : nullptr;
  if (!softmax || !softmax->Is("Softmax")) return nullptr;
  const Shape *scores = ShapeOf(softmax->input(0)), *result = ShapeOf(sum->output(0));
  const bool by_head = scores && result && scores->rank() == kRank && result->rank() == kRank;
  const bool along = by_head && NormalAxis(IntOr(*softmax, "axis", -1), kRank) == kRank - 1;
  return along ? softmax : nullptr;
}

// The same rows, one by one.
bool AreRows(const Element& element, const Element& of) {
  const auto rank = static_cast<int>(element.at.size());
  const Shape& shape = *element.value->shape();
  for (int axis = 0; axis < kRows; ++axis) {
    const bool same = axis < rank && element.at[axis].Key() == of.at[axis].Key() &&
                      ProvablyEqual(shape[axis], (*of.value->shape())[axis]);
    if (!same) return false;
  }
  return rank == kRows || (rank == kRank && shape[kRows].constant() == 1);
}

// Log sums of the scores less sinks, both by row, that gate a product; null if they are none.
const Node* LessSinks(IndexingAnalysis& reader, const Node& product, int gate,
                      const Value* scores) {
  const auto whole = reader.Whole(product.output(0));
  if (!whole.ok()) return nullptr;
  const Element sigmoid = reader.Operand(*whole, gate);
  if (!sigmoid.From("Sigmoid")) return nullptr;
  const Element difference = reader.Operand(sigmoid, 0);
  if (!difference.From("Sub") || !AreRows(difference, *whole)) return nullptr;
  const Element sums = reader.Operand(difference, 0);
  if (!sums.From("ReduceLogSumExp") || !AreRows(sums, *whole)) return nullptr;
  const auto reduced = ReducedBy(*sums.producer(), reader.contents());
  const bool of_scores = reduced && reduced->value == scores && reduced->axis == kRows;
  return of_scores ? difference.producer() : nullptr;
}

// Sinks that broadcast to the rows, as one more column of scores.
Value* SinkColumn(GraphBuilder& builder, Value* scores, const Node& less_sinks) {
  Value* rows = builder.Add("Shape", {scores}, {{"start", int64_t{0}}, {"end", int64_t{kRows}}});
  if (less_sinks.output(0)->shape()->rank() == kRows) {
    Value* by_row = builder.Add("Expand", {less_sinks.input(1), rows});
    return builder.Add("Unsqueeze", {by_row, builder.Ints({kRows})});
  }
  Value* column = builder.Add("Concat", {rows, builder.Ints({1})}, {{"axis", 0}});
  return builder.Add("Expand", {less_sinks.input(1), column});
}

}  // namespace

bool GateToSink(Node& node, Peephole& peephole) {
  for (int side : {0, 1}) {
    const Node* sum = node.input(side)->producer();
    const Node* softmax = WeightsOf(sum);
    if (!softmax) continue;
    Value* scores = softmax->input(0);
    IndexingAnalysis reader(peephole.contents());
    const Node* less_sinks = LessSinks(reader, node, 1 - side, scores);
    if (!less_sinks) continue;
    GraphBuilder builder(peephole.graph(), &node, softmax->output(0)->name());
    Value* column = SinkColumn(builder, scores, *less_sinks);
    Value* joined = builder.Add("Concat", {scores, column}, {{"axis", -1}});
    Value* both = builder.Add("Softmax", {joined}, {{"axis", -1}});
    Value* weights =
        builder.Add("Slice", {both, builder.Ints({0}), builder.Ints({-1}), builder.Ints({kRows})});
    return peephole.ReplaceByNode(node, "MatMul", {weights, sum->input(1)});
  }
  return false;
}

}  // namespace pagefuse
