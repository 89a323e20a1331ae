// SPDX-License-Identifier: Apache-2.0
// table-rows: brings what takes rows of a table to a Gather from the table itself.
//
//   y = GatherElements (Tile (table), Tile (Unsqueeze (rows)))
//   y = Gather (Squeeze (Slice (table, 0, length)), rows)
//     =>  y = Gather (table, rows)
//   y = Gather (f (Range (0, length)), rows)     y = Slice (f (Range (0, length)), start, end)
//     =>  y = f (rows)                             y = f (Slice (Range (0, length), start, end))
//
// where f computes each of its rows, along the first axis, alone.
//
// Which element is shown where is read through views, cuts, repetitions and casts, however they are
// made. A row that counts from the end is another one where the table is cut: rows are provably not
// negative, or inputs, which callers count from the front as they do positions and tokens.
#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/registry/registry.h"
#include "pagefuse/passes/analysis/indexing/layout.h"
#include "pagefuse/passes/analysis/indexing/replacement.h"
#include "pagefuse/passes/edit/constants.h"
#include "pagefuse/passes/edit/match_failure.h"
#include "pagefuse/passes/edit/op_types.h"
#include "pagefuse/passes/edit/slice_cuts.h"
#include "pagefuse/passes/function_pass.h"
#include "pagefuse/passes/recognise/recognise.h"
#include "pagefuse/passes/rewrite/pattern.h"

namespace pagefuse {
namespace {

constexpr std::string_view kName = "table-rows";

bool CountsFromFront(const IndexExpr& rows) {
  if (ProvablyNotNegative(rows.Lower())) return true;
  const IndexSymbolPtr load = (rows - IndexExpr(rows.constant())).symbol();
  return load && load->kind == IndexSymbol::Kind::kLoad && load->tensor->is_input() &&
         ProvablyNotNegative(rows.constant());
}

// The element of its data that a Gather or GatherElements shows at that place.
std::optional<Element> GatheredElement(IndexingAnalysis& reader, const Element& shown) {
  const Node& node = *shown.producer();
  Value *data = node.input(0), *indices = node.input(1);
  if (!data->shape() || !indices->shape()) return std::nullopt;
  const bool rows = node.Is("Gather");
  const auto axis = NormalAxis(IntOr(node, "axis", 0), data->shape()->rank());
  const auto first = shown.at.begin() + axis;
  const auto last = first + (rows ? indices->shape()->rank() : 1);
  const IndexExpr index =
      reader.ReadIndex({indices, rows ? std::vector<IndexExpr>(first, last) : shown.at});
  if (!CountsFromFront(index)) return std::nullopt;
  std::vector<IndexExpr> at(shown.at.begin(), first);
  at.push_back(index);
  at.insert(at.end(), last, shown.at.end());
  return Element{data, std::move(at)};
}

// A constant that elements are taken from, and the casts and other functions of one number between.
struct Table {
  Element element;
  std::vector<const Node*> functions;  // the last one first
};

// Whether an axis is at numbers of tokens, or as long as there are some.
bool IsCounted(const IndexExpr& index) {
  return std::ranges::any_of(index.terms(), [](const auto& term) {
    const IndexSymbol& symbol = *term.second.first;
    return symbol.kind != IndexSymbol::Kind::kAxis || !symbol.extent.constant();
  });
}

// Null for what is gathered along two axes, as masks are.
std::optional<Table> TableBehind(IndexingAnalysis& reader, const Element& shown) {
  const auto gathered = GatheredElement(reader, shown);
  if (!gathered) return std::nullopt;
  Table table{reader.Source(*gathered), {}};
  const Node* node = table.element.producer();
  for (; node && IsElementwise(*node) && node->num_inputs() == 1; node = table.element.producer()) {
    table.functions.push_back(node);
    table.element = reader.Operand(table.element, 0);
  }
  const bool rows = std::ranges::count_if(table.element.at, IsCounted) <= 1;
  return rows && table.element.value->IsConstant() ? std::optional(table) : std::nullopt;
}

absl::StatusOr<Value*> RowsOf(GraphBuilder& builder, Table table, const Element& shown,
                              std::vector<Value*> sizes) {
  const Shape shape = *table.element.value->shape();
  for (auto it = table.functions.rbegin(); it != table.functions.rend(); ++it) {
    table.element.value = builder.Add((*it)->op_type(), {table.element.value}, **it);
    table.element.value->set_shape(shape);
  }
  std::vector<AxisSymbols> axes;
  for (const IndexExpr& at : shown.at) axes.push_back(SymbolOf(at));
  return Layout(builder, std::move(sizes)).GatheredRows(table.element, axes);
}

// Rows of what is computed from a count, one row for each number: computed from the rows' numbers.
class ComputedRows {
 public:
  // `node`: the Gather or Slice that takes them.
  ComputedRows(GraphBuilder& builder, const Node& node) : builder_(builder), node_(node) {}

  // The value [n, ...] at the rows, its first axis; fails if that is no function of each row alone.
  absl::StatusOr<Value*> Of(Value* value) {
    Value*& known = known_[value];
    if (!known) {
      PF_ASSIGN_OR_RETURN(known, Computed(value));
    }
    return known;
  }

 private:
  bool gathers() const { return node_.Is("Gather"); }
  int rank() const { return gathers() ? node_.input(1)->shape()->rank() : 1; }
  absl::Status Unfit(const Value* value) const {
    return MatchFailure(*value, " is not computed from the number of each row alone");
  }

  absl::StatusOr<Value*> Computed(Value* value) {
    Node* node = value->producer();
    const auto& shape = value->shape();
    if (!node || !shape || shape->rank() == 0 || !node->Subgraphs().empty()) return Unfit(value);
    if (node->Is("Range")) return RowsOf(*node);
    if (IsElementwise(*node)) return Elementwise(*node, *shape);
    if (node->Is("MatMul")) return Product(*node, *shape);
    if (node->Is("Concat")) return Joined(*node, *shape);
    if (IsViewNode(*node)) return Viewed(*node, *shape);
    return Unfit(value);
  }

  absl::StatusOr<Value*> RowsOf(const Node& count) {
    if (!gathers()) {
      std::vector<Value*> inputs = {count.output(0), node_.input(1), node_.input(2),
                                    builder_.Ints({0})};
      if (Value* steps = node_.input(4)) inputs.push_back(steps);
      return builder_.Add("Slice", std::move(inputs));
    }
    if (NumberOf(count.input(0)) != 0 || NumberOf(count.input(2)) != 1) {
      return Unfit(count.output(0));
    }
    return builder_.Cast(node_.input(1), count.output(0)->dtype());
  }

  // Whether a value has a row for each of those of a result of that shape.
  static bool HasRows(const Value* value, const Shape& result) {
    const auto& shape = value->shape();
    return shape && shape->rank() == result.rank() && ProvablyEqual((*shape)[0], result[0]);
  }

  static bool IsTheSameForAll(const Value* value, const Shape& result) {
    const auto& shape = value->shape();
    if (!shape || shape->rank() > result.rank()) return false;
    return shape->rank() < result.rank() || (*shape)[0] == Dim(1);
  }

  absl::StatusOr<Value*> Elementwise(const Node& node, const Shape& shape) {
    std::vector<Value*> operands;
    for (Value* operand : node.inputs()) {
      if (operand && HasRows(operand, shape)) {
        PF_ASSIGN_OR_RETURN(operand, Of(operand));
      } else if (operand && !IsTheSameForAll(operand, shape)) {
        return Unfit(operand);
      }
      operands.push_back(operand);
    }
    return Copy(node, std::move(operands));
  }

  absl::StatusOr<Value*> Product(const Node& node, const Shape& shape) {
    const auto& matrix = node.input(1)->shape();
    if (!HasRows(node.input(0), shape) || !matrix || matrix->rank() != 2) {
      return Unfit(node.output(0));
    }
    PF_ASSIGN_OR_RETURN(Value * factor, Of(node.input(0)));
    return Copy(node, {factor, node.input(1)});
  }

  absl::StatusOr<Value*> Joined(const Node& node, const Shape& shape) {
    const int64_t axis = NormalAxis(IntOr(node, "axis", 0), shape.rank());
    std::vector<Value*> parts;
    for (Value* part : node.inputs()) {
      if (axis == 0 || !HasRows(part, shape)) return Unfit(part);
      PF_ASSIGN_OR_RETURN(Value * rows, Of(part));
      parts.push_back(rows);
    }
    return builder_.Add("Concat", parts, {{"axis", axis - shape.rank()}});
  }

  // Numbers that are put along the first axis, [n] as [n, 1, ..].
  absl::StatusOr<Value*> Viewed(const Node& node, const Shape& shape) {
    const auto& from = node.input(0)->shape();
    const bool column = from && from->rank() == 1 && ProvablyEqual((*from)[0], shape[0]);
    std::vector<int64_t> added;
    for (int axis = 1; axis < shape.rank(); ++axis) {
      if (!column || shape[axis] != Dim(1)) return Unfit(node.output(0));
      added.push_back(rank() + axis - 1);
    }
    if (!column) return Unfit(node.output(0));
    PF_ASSIGN_OR_RETURN(Value * numbers, Of(node.input(0)));
    return added.empty() ? numbers : builder_.Add("Unsqueeze", {numbers, builder_.Ints(added)});
  }

  Value* Copy(const Node& node, std::vector<Value*> inputs) {
    return builder_.AddNode(node.domain(), node.op_type(), std::move(inputs), 1, node)->output(0);
  }

  GraphBuilder& builder_;
  const Node& node_;
  std::map<const Value*, Value*> known_;
};

// Whether a value comes from a count, as far as ComputedRows may follow it.
bool ComesFromCount(const Value* value, int& steps_left) {
  const Node* node = value ? value->producer() : nullptr;
  if (!node || --steps_left < 0) return false;
  if (node->Is("Range")) return true;
  const bool followed =
      IsElementwise(*node) || IsViewNode(*node) || IsAnyOf(*node, {"MatMul", "Concat"});
  return followed && std::ranges::any_of(node->inputs(), [&](const Value* input) {
           return ComesFromCount(input, steps_left);
         });
}

// Whether the node takes rows, along the first axis, of what comes from a count.
bool TakesCounted(IndexingAnalysis& reader, const Element& shown) {
  const Node& node = *shown.producer();
  const auto& data = node.input(0)->shape();
  int steps_left = 256;
  if (!data || !ComesFromCount(node.input(0), steps_left)) return false;
  if (node.Is("Slice")) {
    const auto cuts = CutsOfSlice(node, reader.contents());
    return node.input(1)->dtype() == DataType::kInt64 && cuts && cuts->size() == 1 &&
           cuts->front().axis == 0 && !node.input(0)->producer()->Is("Range");
  }
  const auto& rows = node.input(1)->shape();
  return node.Is("Gather") && rows && rows->rank() > 0 &&
         NormalAxis(IntOr(node, "axis", 0), data->rank()) == 0 && GatheredElement(reader, shown);
}

absl::StatusOr<bool> Rewrite(Model& model, Node* node, PassContext& context) {
  Graph& graph = *model.graph;
  IndexingAnalysis reader(context.contents, Trust::kNothing);
  const auto shown = reader.Places(node->output(0));
  if (!shown.ok()) return false;
  const auto table = node->Is("Slice") ? std::nullopt : TableBehind(reader, *shown);
  if (!table && !TakesCounted(reader, *shown)) return false;
  Replacement replacement(graph, *node->output(0), kName);
  GraphBuilder& builder = replacement.builder();
  const auto rows = table ? RowsOf(builder, *table, *shown, graph.inputs())
                          : ComputedRows(builder, *node).Of(node->input(0));
  if (!rows.ok()) {
    context.AddMissedMatch(kName, NodeLabel(*node), StdView(rows.status().message()), 2);
    replacement.Undo();
    return false;
  }
  PF_RETURN_IF_ERROR(replacement.Finish(std::vector<Value*>{*rows}, {node->output(0)},
                                        model.opset_imports, context.contents));
  PF_RETURN_IF_ERROR(context.Rewrote(model, kName));
  return true;
}

absl::StatusOr<bool> Run(Model& model, PassContext& context) {
  bool changed = false;
  for (Node* node : NodesOf(*model.graph)) {
    if (!IsAnyOf(*node, {"Gather", "GatherElements", "Slice"})) continue;
    // What is the same in every run becomes a constant by itself.
    const auto& data = node->input(0)->shape();
    if (!data || (!node->Is("GatherElements") && data->constant())) continue;
    PF_ASSIGN_OR_RETURN(const bool rewritten, Rewrite(model, node, context));
    changed = changed || rewritten;
  }
  return changed;
}

}  // namespace

std::unique_ptr<Pass> RecogniseTableRows() {
  return MakePass(
      kName,
      "Recognises rows that are taken from a table that is cut, repeated, viewed or computed "
      "row by row, and gathers them from the table itself, or computes them alone.",
      Run);
}

}  // namespace pagefuse
