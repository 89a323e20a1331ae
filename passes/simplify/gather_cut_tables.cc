// SPDX-License-Identifier: Apache-2.0
// gather-cut-tables: replaces slices of a constant table that take as many rows as there are tokens
// by Gathers at the positions of the rows.
//
//   rows = Slice (table [L, ...], starts = s, ends = e)      y = Mul (x [..., e - s, ...], rows)
//     =>  rows = Gather (table, Range (s, e))
//
// A slice ends where the table ends, so that nothing is known of how many rows it has. But beside x
// an elementwise op takes as many rows as x has, and a table cut short has fewer: what runs has
// e - s rows, and those that are gathered are provably as many. Axes that are cut one after the
// other are cuts of one table too.
#include <algorithm>
#include <optional>
#include <vector>

#include "pagefuse/passes/analysis/indexing/broadcast_proof.h"
#include "pagefuse/passes/analysis/indexing/index_expr.h"
#include "pagefuse/passes/edit/graph_builder.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/op_types.h"
#include "pagefuse/passes/edit/ports.h"
#include "pagefuse/passes/edit/slice_cuts.h"
#include "pagefuse/passes/function_pass.h"
#include "pagefuse/passes/simplify/simplify.h"

namespace pagefuse {
namespace {

using ports::Slice;

// Rows `start` to `end` of an axis.
struct Cut {
  int axis = 0;
  int64_t whole = 0;  // length of the axis
  Dim start, end;
  Value* starts = nullptr;
  Value* ends = nullptr;
  int64_t place = 0;  // in both
};

bool JoinsPlaces(const Node& node) {
  return IsAnyOf(node, {"Add", "Sub", "Mul", "Div", "Where", "And", "Or"});
}

// Where an axis of what is read is behind a view, or behind a table that it says rows of; nullopt if it
// is not followed.
std::optional<int> AxisBehind(const Use& use, int axis, const SymbolicContents& contents) {
  const Node& node = *use.node;
  if (IsAnyOf(node, {"Cast", "Identity", "Neg"})) return axis;
  if (node.Is("GatherElements") && use.index == 1) return axis;
  if (node.Is("Gather") && use.index == 1 && node.input(0)->shape()) {
    return axis +
           static_cast<int>(NormalAxis(IntOr(node, "axis", 0), node.input(0)->shape()->rank()));
  }
  const auto& shape = node.output(0)->shape();
  if (!node.Is("Unsqueeze") || !shape) return std::nullopt;
  const auto axes = KnownInts(node.input(1), contents);
  if (!axes) return std::nullopt;
  std::vector<bool> is_new(shape->rank(), false);
  for (int64_t added : *axes) is_new[NormalAxis(added, shape->rank())] = true;
  for (int behind = 0; behind < shape->rank(); ++behind) {
    if (!is_new[behind] && axis-- == 0) return behind;
  }
  return std::nullopt;
}

// What the operands beside the rows are along their axis: one of them `length` long, or all of them
// repeated.
enum class Beside { kLength, kRepeated, kOther };

Beside OperandsBeside(const Node& node, const AxisOf& rows, const Dim& length,
                      const SymbolicContents& contents) {
  const int from_end = rows.value->shape()->rank() - rows.axis;
  Beside beside = Beside::kRepeated;
  for (const Value* other : node.inputs()) {
    if (!other || other == rows.value) continue;
    if (!other->shape()) return Beside::kOther;
    if (other->shape()->rank() < from_end) continue;
    // A broadcast from one that is so long is, too, unless the length is 1: then the rows are one.
    if (Reaches(other, from_end - 1, length, contents)) return Beside::kLength;
    if (other->shape()->back(from_end - 1).constant() != 1) beside = Beside::kOther;
  }
  return beside;
}

// Whether rows are repeated to `length` of them, unless they are as many: one row is.
bool IsExpandedTo(const Node& node, const AxisOf& rows, const Dim& length,
                  const SymbolicContents& contents) {
  const auto sizes = node.Is("Expand") ? contents.find(node.input(1)) : contents.end();
  const int from_end = rows.value->shape()->rank() - rows.axis;
  if (sizes == contents.end() || static_cast<int>(sizes->second.size()) < from_end) return false;
  return ProvablyEqual(*(sizes->second.end() - from_end), length);
}

// True if everything that reads the rows takes `length` of them; who asks for their number besides
// gets that. `uses_left`: how many readers more are looked at; one that reads a value twice is two.
bool IsReadByLength(const Value* rows, int axis, const Dim& length,
                    const SymbolicContents& contents, int& uses_left) {
  const auto asks = [](const Use& use) { return use.node->Is("Shape"); };
  if (rows->is_output() || !rows->shape() || std::ranges::all_of(rows->uses(), asks)) return false;
  return std::ranges::all_of(rows->uses(), [&](const Use& use) {
    if (asks(use)) return true;
    if (--uses_left < 0) return false;
    if (use.index == 0 && IsExpandedTo(*use.node, {rows, axis}, length, contents)) return true;
    auto behind = AxisBehind(use, axis, contents);
    if (JoinsPlaces(*use.node)) {
      const Beside beside = OperandsBeside(*use.node, {rows, axis}, length, contents);
      if (beside != Beside::kRepeated) return beside == Beside::kLength;
      const auto& result = use.node->output(0)->shape();
      if (result) behind = axis + result->rank() - rows->shape()->rank();
    }
    return behind && IsReadByLength(use.node->output(0), *behind, length, contents, uses_left);
  });
}

// False if the table is cut to one row in every run: that row is repeated. Where a run says the start,
// one row may be left at the table's end; a run that would repeat it for several tokens ends with an
// error of the Gather, as one does that goes further.
bool HasRows(const Cut& cut) {
  const auto start = cut.start.constant();
  return !start || cut.whole - *start > 1;
}

// The constant that Slices cut one after the other, the last one first; null if there is none, or
// if another node reads what is between them.
Value* TableBehind(Node& last, std::vector<Node*>& slices) {
  slices = {&last};
  Value* table = last.input(0);
  while (table->producer() && table->producer()->Is("Slice") && table->uses().size() == 1 &&
         !table->is_output()) {
    slices.push_back(table->producer());
    table = table->producer()->input(0);
  }
  return table->IsConstant() && table->shape() ? table : nullptr;
}

// What of a table is left.
struct CutTable {
  Value* table = nullptr;
  std::vector<Cut> cuts;  // none: not all of them depend on sizes, or are known to end inside
};

// The cuts of a Slice, and of those before it.
CutTable CutsOf(Node& slice, const SymbolicContents& contents) {
  if (!slice.Is("Slice")) return {};
  std::vector<Node*> slices;
  CutTable found{TableBehind(slice, slices), {}};
  if (!found.table) return {};
  for (const Node* each : slices) {
    const auto listed = CutsOfSlice(*each, contents);
    if (!listed) return {};
    for (size_t i = 0; i < listed->size(); ++i) {
      const auto& [axis, start, end, step] = (*listed)[i];
      const int64_t whole = (*found.table->shape())[axis].constant().value_or(0);
      int uses_left = 4096;
      const bool fits = whole > 1 && step == 1 && end.known() && !end.is_constant() &&
                        ProvablyNotNegative(start) && ProvablyNotNegative(end - start) &&
                        IsReadByLength(slice.output(0), axis, end - start, contents, uses_left);
      const bool again = std::ranges::any_of(
          found.cuts, [axis = axis](const Cut& cut) { return cut.axis == axis; });
      if (!fits || again) return {};
      found.cuts.push_back({axis, whole, start, end, each->input(Slice::kStarts),
                            each->input(Slice::kEnds), static_cast<int64_t>(i)});
    }
  }
  return std::ranges::all_of(found.cuts, HasRows) ? found : CutTable{};
}

Value* Scalar(GraphBuilder& builder, Value* list, int64_t place) {
  Value* one = builder.Add("Slice", {list, builder.Ints({place}), builder.Ints({place + 1})});
  Value* scalar = builder.Add("Squeeze", {one, builder.Ints({0})});
  return list->dtype() == DataType::kInt64 ? scalar : builder.Cast(scalar, DataType::kInt64);
}

void Replace(Graph& graph, Node* slice, const CutTable& found) {
  GraphBuilder builder(graph, slice, slice->output(0)->name());
  Value* rows = found.table;
  for (const Cut& cut : found.cuts) {
    Value* places = builder.Add("Range", {Scalar(builder, cut.starts, cut.place),
                                          Scalar(builder, cut.ends, cut.place), builder.Int(1)});
    rows = builder.Add("Gather", {rows, places}, {{"axis", cut.axis}});
  }
  ReplaceNode(slice, rows);
}

absl::StatusOr<bool> Rewrite(Graph& graph, Node* node, const SymbolicContents& contents) {
  const CutTable found = CutsOf(*node, contents);
  if (found.cuts.empty()) return false;
  Replace(graph, node, found);
  return true;
}

}  // namespace

std::unique_ptr<Pass> GatherCutRows() {
  return MakeNodePass(
      "gather-cut-tables",
      "Replaces slices of constant tables that take one row for each token by Gathers at the "
      "positions of the rows.",
      Rewrite);
}

}  // namespace pagefuse
