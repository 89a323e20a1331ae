// SPDX-License-Identifier: Apache-2.0
// unsorted-rows: removes the sorting of rows by expert, and its inverse, around ops that look at
// each row alone:
//
//   sorted, order = TopK <largest = 0> (ids)     back = places of order, sorted
//   y = Gather (f (Gather (x, order), sorted), back)  =>  y = f (x, ids)
//
// Rows x [M, ..] that each ask for k experts are taken by order / k: k copies of each row. The way back
// may be a ScatterND that adds rows to zeros, at order or, for the sum of the k rows, at order / k.
#include <map>
#include <vector>

#include "pagefuse/passes/edit/graph_builder.h"
#include "pagefuse/passes/edit/slice_cuts.h"
#include "pagefuse/passes/function_pass.h"
#include "pagefuse/passes/recognise/recognise.h"
#include "pagefuse/passes/recognise/sorted_rows.h"
#include "pagefuse/passes/simplify/products/product_rules.h"

namespace pagefuse {
namespace {

bool IsRowsGather(const Node& node) {
  return node.Is("Gather") && IntOr(node, "axis", 0) == 0 && node.input(0)->shape() &&
         node.input(1)->shape() && node.input(1)->shape()->rank() == 1;
}

// Finds rows as they were before they were sorted; makes nodes where `writes`, else only looks.
class Unsorter {
 public:
  Unsorter(Graph& graph, Node& back, const SymbolicContents& contents, const SortedIds& sort,
           bool writes)
      : builder_(graph, &back, back.output(0)->name()),
        contents_(contents),
        sort_(sort),
        writes_(writes) {}

  // Null if that is not known; without `writes`, any value that is not null.
  Value* Unsorted(Value* rows) {
    const auto known = unsorted_.find(rows);
    if (known != unsorted_.end()) return known->second;
    Value* found = rows == sort_.sorted ? sort_.ids : Find(rows);
    unsorted_[rows] = found;
    return found;
  }

 private:
  Value* Find(Value* rows) {
    const Node* node = rows->producer();
    if (node == nullptr || !rows->shape() || !IsLong(rows)) return nullptr;
    if (IsRowsGather(*node)) return Taken(*node);
    if (node->Is("Expand") && SameShapes(node->input(0), rows)) return Unsorted(node->input(0));
    if (node->Is("GroupedMatMul", "pagefuse")) {
      return IntOr(*node, "repeat", 1) == 1 ? Copied(*node, rows, 2) : nullptr;
    }
    if (IsElementwiseOp(*node)) return Copied(*node, rows, node->num_inputs());
    return KeepsRows(*node) ? Copied(*node, rows, 1) : nullptr;
  }

  // One element of the first axis is one row.
  bool IsLong(const Value* value) const {
    return value->shape() && value->shape()->rank() > 0 && sort_.ids->shape() &&
           ProvablyEqual((*value->shape())[0], (*sort_.ids->shape())[0]);
  }

  // Views and cuts that leave the first axis as it is.
  bool KeepsRows(const Node& node) const {
    if (!IsLong(node.input(0))) return false;
    const int rank = node.input(0)->shape()->rank();
    if (node.Is("Split")) return NormalAxis(IntOr(node, "axis", 0), rank) != 0;
    if (node.Is("Slice")) {
      const auto cut = OnlyCut(node, contents_);
      return cut && cut->axis != 0;
    }
    return node.Is("Unsqueeze") || node.Is("Reshape") || node.Is("Squeeze");
  }

  // Rows by the order itself, or by the row that each of k experts was asked for by.
  Value* Taken(const Node& gather) {
    Value* rows = gather.input(0);
    Value* index = gather.input(1);
    if (index == sort_.order) return IsLong(rows) ? rows : nullptr;
    const auto times = RowsQuotient(index, sort_, contents_);
    const Shape& shape = *rows->shape();
    if (!times || shape.rank() != 2 || !shape[1].is_constant() ||
        !ProvablyEqual(shape[0] * Dim(*times), (*sort_.ids->shape())[0])) {
      return nullptr;
    }
    if (!writes_) return rows;
    Value* once = builder_.Add("Unsqueeze", {rows, builder_.Ints({1})});
    Value* each = builder_.Add("Expand", {once, builder_.Ints({1, *times, 1})});
    return builder_.Add("Reshape", {each, builder_.Ints({-1, *shape[1].constant()})});
  }

  // The node again over its first `rows` inputs as they were; what is the same for all rows stays.
  Value* Copied(const Node& node, const Value* output, int rows) {
    std::vector<Value*> inputs;
    const int rank = output->shape()->rank();
    for (int i = 0; i < node.num_inputs(); ++i) {
      Value* input = node.input(i);
      const bool is_row = input != nullptr && i < rows && input->shape() && IsLong(input);
      // A row of a lower rank lies along another axis.
      if (is_row && IsElementwiseOp(node) && input->shape()->rank() != rank) return nullptr;
      if (input != nullptr && i < rows && !is_row && !IsSameForAllRows(*input, rank))
        return nullptr;
      Value* unsorted = is_row ? Unsorted(input) : input;
      if (is_row && unsorted == nullptr) return nullptr;
      inputs.push_back(unsorted);
    }
    if (!writes_) return node.output(0);
    Node*& copy = copies_[&node];
    if (copy == nullptr) {
      copy = builder_.AddNode(node.domain(), node.op_type(), inputs, node.num_outputs(), node);
    }
    return copy->output(output->producer_index());
  }

  static bool IsSameForAllRows(const Value& value, int rank) {
    if (!value.shape()) return false;
    return value.shape()->rank() < rank || (*value.shape())[0].constant() == 1;
  }

  GraphBuilder builder_;
  const SymbolicContents& contents_;
  const SortedIds sort_;
  const bool writes_;
  std::map<const Value*, Value*> unsorted_;
  std::map<const Node*, Node*> copies_;
};

// Rows that go back to where they stood before they were sorted, or to a sum of `each` that stand side
// by side there.
struct RowsBack {
  Value* rows = nullptr;
  SortedIds sort;
  int64_t each = 1;
};

std::optional<RowsBack> GatheredBack(const Node& gather, const SymbolicContents& contents) {
  const auto back = SortOf(gather.input(1), contents);
  if (!back || back->order != gather.input(1)) return std::nullopt;
  const auto sort = SortOf(back->ids, contents);
  if (!sort || sort->order != back->ids) return std::nullopt;
  return RowsBack{.rows = gather.input(0), .sort = *sort};
}

// Zeros to which rows [M, N] are added at their order, or at order / k.
std::optional<RowsBack> AddedBack(const Node& scatter, const SymbolicContents& contents) {
  const Node* column = scatter.input(1)->producer();
  const auto &places = scatter.input(1)->shape(), &sums = scatter.input(0)->shape(),
             &rows = scatter.input(2)->shape();
  const bool adds = StringOr(scatter, "reduction", "none") == "add" && column != nullptr &&
                    (column->Is("Unsqueeze") || column->Is("Reshape")) && places && sums && rows &&
                    places->rank() == 2 && (*places)[1].constant() == 1 && rows->rank() == 2 &&
                    sums->rank() == 2 && (*rows)[1].is_constant();
  if (!adds || !IsAll(scatter.input(0), 0)) return std::nullopt;
  Value* index = column->input(0);
  const Node* quotient = index->producer();
  const Value* order = quotient && quotient->Is("Div") ? quotient->input(0) : index;
  const auto sort = SortOf(order, contents);
  if (!sort || sort->order != order) return std::nullopt;
  const auto each =
      order == index ? std::optional<int64_t>(1) : RowsQuotient(index, *sort, contents);
  if (!each || !ProvablyEqual((*sums)[0] * Dim(*each), (*rows)[0])) return std::nullopt;
  return RowsBack{.rows = scatter.input(2), .sort = *sort, .each = *each};
}

// The sum of as many rows, one after the other.
Value* SummedRows(GraphBuilder& builder, Value* rows, int64_t each, int64_t columns) {
  Value* apart = builder.Reshape(rows, {-1, each, columns});
  return builder.Add("ReduceSum", {apart, builder.Ints({1})}, {{"keepdims", 0}});
}

absl::StatusOr<bool> Rewrite(Graph& graph, Node* node, const SymbolicContents& contents) {
  std::optional<RowsBack> back;
  if (IsRowsGather(*node)) back = GatheredBack(*node, contents);
  if (node->Is("ScatterND")) back = AddedBack(*node, contents);
  if (!back) return false;
  Unsorter looker(graph, *node, contents, back->sort, /*writes=*/false);
  if (looker.Unsorted(back->rows) == nullptr) return false;
  Unsorter writer(graph, *node, contents, back->sort, /*writes=*/true);
  Value* rows = writer.Unsorted(back->rows);
  GraphBuilder builder(graph, node, node->output(0)->name());
  if (back->each > 1)
    rows = SummedRows(builder, rows, back->each, *back->rows->shape()->back(0).constant());
  if (!ReplaceValue(graph, node->output(0), rows)) return false;
  graph.EraseIfDead(node);
  return true;
}

}  // namespace

std::unique_ptr<Pass> UnsortedRows() {
  return MakeNodePass(
      "unsorted-rows",
      "Removes the sorting of rows by expert, and its inverse, around ops that look at each row "
      "alone.",
      Rewrite);
}

}  // namespace pagefuse
