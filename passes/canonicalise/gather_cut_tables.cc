// gather-cut-tables: rows that are cut out of a constant table, as many as there are tokens, are
// gathered by their places.
//
//   rows = Slice (table [L, ...], starts = s, ends = e)      y = Mul (x [..., e - s, ...], rows)
//     =>  rows = Gather (table, Range (s, e))
//
// A slice ends where the table ends, so that nothing is known of how many rows it has. But beside x
// an elementwise op takes as many rows as x has, and a table cut short has fewer, and more than
// one: what runs has e - s rows, and those that are gathered are provably as many.
#include <algorithm>
#include <numeric>
#include <optional>
#include <vector>

#include "pagefuse/passes/canonicalise/canonicalise.h"
#include "pagefuse/passes/graph_builder.h"
#include "pagefuse/passes/graph_edit.h"
#include "pagefuse/passes/node_pass.h"
#include "pagefuse/passes/ports.h"
#include "pagefuse/passes/slice_cuts.h"
#include "pagefuse/passes/words/index_form.h"

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

bool IsElementwise(const Node& node) {
  for (std::string_view op : {"Add", "Sub", "Mul", "Div", "Where", "And", "Or"}) {
    if (node.Is(op)) return true;
  }
  return false;
}

// Where an axis of the input is behind a view; nullopt if it is not followed.
std::optional<int> AxisBehind(const Node& node, int axis, const SymbolicContents& contents) {
  if (node.Is("Cast") || node.Is("Identity") || node.Is("Neg")) return axis;
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

// True if another operand is provably `length` long where this one has its rows.
bool MeetsLength(const Node& node, const Value* rows, int axis, const Dim& length) {
  const int from_end = rows->shape()->rank() - axis;
  return std::any_of(node.inputs().begin(), node.inputs().end(), [&](const Value* other) {
    if (!other || other == rows || !other->shape() || other->shape()->rank() < from_end) {
      return false;
    }
    return ProvablyEqual((*other->shape())[other->shape()->rank() - from_end], length);
  });
}

// True if everything that reads the rows takes `length` of them.
bool IsReadByLength(const Value* rows, int axis, const Dim& length,
                    const SymbolicContents& contents) {
  if (rows->is_output() || rows->uses().empty() || !rows->shape()) return false;
  return std::all_of(rows->uses().begin(), rows->uses().end(), [&](const Use& use) {
    if (IsElementwise(*use.node)) return MeetsLength(*use.node, rows, axis, length);
    const auto behind = AxisBehind(*use.node, axis, contents);
    return behind && IsReadByLength(use.node->output(0), *behind, length, contents);
  });
}

// True if the slice runs only where the table goes as far as `end`. From another start than the
// first row, a single row could be left, which would be repeated.
bool EndsInside(const Cut& cut, const std::vector<Cut>& cuts) {
  return std::any_of(cuts.begin(), cuts.end(), [&](const Cut& other) {
    return other.start.constant() == 0 && other.whole == cut.whole &&
           ProvablyEqual(other.end, cut.end);
  });
}

// The cuts of a Slice whose every end depends on sizes; empty if it is another one.
std::vector<Cut> CutsOf(const Node& slice, const SymbolicContents& contents) {
  const Value* table = slice.input(0);
  if (!slice.Is("Slice") || !table->IsConstant() || !table->shape()) return {};
  const auto listed = CutsOfSlice(slice, contents);
  if (!listed) return {};
  std::vector<Cut> cuts;
  for (size_t i = 0; i < listed->size(); ++i) {
    const auto& [axis, start, end, step] = (*listed)[i];
    const int64_t whole = (*table->shape())[axis].constant().value_or(0);
    Cut cut{axis,
            whole,
            start,
            end,
            slice.input(Slice::kStarts),
            slice.input(Slice::kEnds),
            static_cast<int64_t>(i)};
    const bool fits = whole > 1 && step == 1 && cut.end.known() && !cut.end.is_constant() &&
                      ProvablyNotNegative(cut.start) && ProvablyNotNegative(cut.end - cut.start) &&
                      IsReadByLength(slice.output(0), axis, cut.end - cut.start, contents);
    if (!fits) return {};
    cuts.push_back(cut);
  }
  if (!std::all_of(cuts.begin(), cuts.end(),
                   [&](const Cut& cut) { return EndsInside(cut, cuts); })) {
    return {};
  }
  return cuts;
}

Value* Scalar(GraphBuilder& builder, Value* list, int64_t place) {
  Value* one = builder.Add("Slice", {list, builder.Ints({place}), builder.Ints({place + 1})});
  Value* scalar = builder.Add("Squeeze", {one, builder.Ints({0})});
  return list->dtype() == DataType::kInt64
             ? scalar
             : builder.Add("Cast", {scalar}, "to", static_cast<int64_t>(DataType::kInt64));
}

void Replace(Graph& graph, Node* slice, const std::vector<Cut>& cuts) {
  GraphBuilder builder(graph, slice, slice->output(0)->name());
  Value* rows = slice->input(0);
  for (const Cut& cut : cuts) {
    Value* places = builder.Add("Range", {Scalar(builder, cut.starts, cut.place),
                                          Scalar(builder, cut.ends, cut.place), builder.Int(1)});
    rows = builder.Add("Gather", {rows, places}, "axis", int64_t{cut.axis});
  }
  graph.ReplaceAllUses(slice->output(0), rows);
  graph.EraseIfDead(slice);
}

class GatherCutTables : public NodePass {
 public:
  GatherCutTables()
      : NodePass("gather-cut-tables",
                 "Gathers what is cut out of constant tables, a row for each token, by place.") {}

 private:
  absl::StatusOr<bool> Rewrite(Graph& graph, Node* node,
                               const SymbolicContents& contents) const override {
    const std::vector<Cut> cuts = CutsOf(*node, contents);
    if (cuts.empty()) return false;
    Replace(graph, node, cuts);
    return true;
  }
};

}  // namespace

std::unique_ptr<Pass> GatherCutRows() { return std::make_unique<GatherCutTables>(); }

}  // namespace pagefuse
