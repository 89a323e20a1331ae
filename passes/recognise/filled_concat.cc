// SPDX-License-Identifier: Apache-2.0
// filled-concat: a tensor whose rows are all overwritten by two scatters is their Concat, as the
// keys of DeepSeek exports are made (an empty tensor, filled by slice assignments).
//
//   z -- ScatterND([[0], .. [P-1]], a) -- ScatterND([[P], .. [D-1]], b)    =>    Concat<0>(a, b)
//
// The TorchScript exporter gives the place of every element instead, [.., D, axes], a part for each
// axis: the same along the axis of which the parts have a range. Where a and b are transposed alike, the Concat stands before the Transpose, and a Transpose of
// the whole joins it.
#include <optional>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/passes/analysis/indexing/indexing_analysis.h"
#include "pagefuse/passes/edit/axes.h"
#include "pagefuse/passes/edit/graph_builder.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/ports.h"
#include "pagefuse/passes/edit/readers_text.h"
#include "pagefuse/passes/function_pass.h"
#include "pagefuse/passes/recognise/recognise.h"

namespace pagefuse {
namespace {

constexpr std::string_view kName = "filled-concat";

// What a ScatterND overwrites: elements [first, first + count) of one axis, all of the others.
struct AxisRange {
  int64_t axis = 0, first = 0, count = 0;
};

// Rows of the first axis by a list of their numbers.
std::optional<AxisRange> RowsOf(const Tensor& indices) {
  if (indices.rank() != 2 || indices.dims()[1] != 1) return std::nullopt;
  const absl::StatusOr<std::vector<int64_t>> rows = IntegerValues(indices);
  if (!rows.ok() || rows->empty() || rows->front() < 0) return std::nullopt;
  for (size_t i = 1; i < rows->size(); ++i) {
    if ((*rows)[i] != rows->front() + static_cast<int64_t>(i)) return std::nullopt;
  }
  return AxisRange{.first = rows->front(), .count = static_cast<int64_t>(rows->size())};
}

// Where part `axis` of a grid of indices starts; nullopt unless it counts by 1 along its own axis.
std::optional<int64_t> GridStart(Value* part, int axis, const SymbolicContents& contents) {
  IndexingAnalysis reader(contents, Trust::kNothing);
  const auto places = reader.Places(part);
  if (!places.ok() || axis >= static_cast<int>(places->at.size())) return std::nullopt;
  return (reader.ReadIndex(*places) - places->at[axis]).number();
}

// A grid [d0, .., dn, n + 1] of the places of all elements of a box, a part for each axis.
std::optional<AxisRange> BoxOf(const Node& scatter, const SymbolicContents& contents) {
  const Value* indices = scatter.input(1);
  const Node* join = indices->producer();
  const auto& grid = indices->shape();
  const auto& whole = scatter.output(0)->shape();
  if (!join || !join->Is("Concat") || !grid || !whole) return std::nullopt;
  const int rank = whole->rank();
  if (grid->rank() != rank + 1 || join->num_inputs() != rank ||
      NormalAxis(IntOr(*join, "axis", 0), rank + 1) != rank) {
    return std::nullopt;
  }
  std::optional<AxisRange> range;
  for (int axis = 0; axis < rank; ++axis) {
    const std::optional<int64_t> start = GridStart(join->input(axis), axis, contents);
    if (!start) return std::nullopt;
    if (*start == 0 && ProvablyEqual((*grid)[axis], (*whole)[axis])) continue;
    const std::optional<int64_t> count = (*grid)[axis].constant();
    if (range || !count || *start < 0) return std::nullopt;
    range = AxisRange{axis, *start, *count};
  }
  return range;
}

std::optional<AxisRange> RangeOf(const Node& scatter, const SymbolicContents& contents) {
  if (StringOr(scatter, "reduction", "none") != "none") return std::nullopt;
  const Tensor* constant = ConstantOf(scatter.input(1));
  return constant != nullptr ? RowsOf(*constant) : BoxOf(scatter, contents);
}

// The first and second part of the tensor that `second` completes.
struct Filled {
  Value* first = nullptr;
  Value* second = nullptr;
  int64_t axis = 0;
};

// `why` says what is missing where the node nearly matches.
std::optional<Filled> FindFilled(const Node& second, const SymbolicContents& contents,
                                 std::string& why) {
  const Node* first = second.Is("ScatterND") ? second.input(0)->producer() : nullptr;
  if (first == nullptr || !first->Is("ScatterND")) return std::nullopt;
  const std::optional<AxisRange> a = RangeOf(*first, contents);
  const std::optional<AxisRange> b = RangeOf(second, contents);
  const auto& shape = second.output(0)->shape();
  if (!a || !b || !shape || shape->rank() < 1) {
    why = "the indices are no known range of one axis";
    return std::nullopt;
  }
  if (a->axis != b->axis || a->first != 0 || b->first != a->count ||
      (*shape)[static_cast<int>(a->axis)].constant() != a->count + b->count) {
    why = "the scatters do not fill the tensor, first part first";
    return std::nullopt;
  }
  return Filled{first->input(ports::ScatterND::kUpdates), second.input(ports::ScatterND::kUpdates),
                a->axis};
}

// The permutation that both values were made with, or nullopt.
std::optional<std::vector<int64_t>> SharedPermutation(const Filled& filled) {
  std::optional<std::vector<int64_t>> shared;
  for (const Value* value : {filled.first, filled.second}) {
    const Node* transpose = value->producer();
    if (transpose == nullptr || !transpose->Is("Transpose")) return std::nullopt;
    const auto perm = transpose->IntsAttribute("perm", {});
    if (!perm.ok() || perm->empty() || (shared && *shared != *perm)) return std::nullopt;
    shared = *perm;
  }
  return shared;
}

// The Transpose that alone reads the value, or null.
Node* OnlyTranspose(const Value* value) {
  Node* reader = OnlyReader(*value);
  if (!reader || !reader->Is("Transpose") || reader->graph() != value->graph()) return nullptr;
  const auto perm = reader->IntsAttribute("perm", {});
  return perm.ok() && !perm->empty() ? reader : nullptr;
}

void Replace(Graph& graph, Node* node, const Filled& filled) {
  GraphBuilder builder(graph, node, node->output(0)->name());
  std::optional<std::vector<int64_t>> perm = SharedPermutation(filled);
  if (!perm) {
    Value* joined = builder.Add("Concat", {filled.first, filled.second}, {{"axis", filled.axis}});
    ReplaceNode(node, joined);
    return;
  }
  Value* joined = builder.Add(
      "Concat", {filled.first->producer()->input(0), filled.second->producer()->input(0)},
      {{"axis", (*perm)[static_cast<size_t>(filled.axis)]}});
  Node* last = node;
  if (Node* reader = OnlyTranspose(node->output(0))) {
    // Both permutations at once, in which form a key is known.
    std::vector<int64_t> outer = *reader->IntsAttribute("perm", {});
    for (int64_t& axis : outer) axis = (*perm)[axis];
    perm = outer;
    last = reader;
  }
  const bool in_place = MovesNothing(*perm);
  Value* whole = in_place ? joined : builder.Add("Transpose", {joined}, {{"perm", *perm}});
  ReplaceNode(last, whole);
}

absl::StatusOr<bool> Run(Model& model, PassContext& context) {
  Graph& graph = *model.graph;
  bool changed = false;
  // A rewrite may erase the Transpose behind its scatter, but no scatter behind it.
  for (Node* node : NodesOf(graph, "ScatterND")) {
    std::string why;
    const std::optional<Filled> filled = FindFilled(*node, context.contents, why);
    if (!why.empty()) context.AddMissedMatch(kName, NodeLabel(*node), why, 2);
    if (!filled) continue;
    changed = true;
    Replace(graph, node, *filled);
    PF_RETURN_IF_ERROR(context.Rewrote(model, kName));
  }
  return changed;
}

}  // namespace

std::unique_ptr<Pass> RecogniseFilledConcat() {
  return MakePass(
      kName,
      "Recognises a tensor that two scatters fill completely and makes it a Concat of what they "
      "write.",
      Run);
}

}  // namespace pagefuse
