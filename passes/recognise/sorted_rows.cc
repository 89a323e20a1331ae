// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/recognise/sorted_rows.h"

#include <algorithm>

#include "pagefuse/ops/kernels/numeric/convert.h"
#include "pagefuse/passes/edit/graph_edit.h"

namespace pagefuse {
namespace {

bool IsView(const Node& node) {
  return node.Is("Unsqueeze") || node.Is("Squeeze") || node.Is("Reshape") || node.Is("Identity") ||
         node.Is("Cast");
}

bool IsVector(const Value* value) { return value->shape() && value->shape()->rank() == 1; }

// A TopK that gives all elements of a vector, the smallest first.
bool SortsAll(const Node& node, const SymbolicContents& contents) {
  if (!node.Is("TopK") || IntOr(node, "largest", 1) != 0 || IntOr(node, "sorted", 1) == 0)
    return false;
  const Value* ids = node.input(0);
  const auto count = KnownDims(node.input(1), contents);
  return IsVector(ids) && count && count->size() == 1 &&
         ProvablyEqual((*count)[0], (*ids->shape())[0]);
}

std::optional<SortedIds> SortBy(const Node& node, const SymbolicContents& contents) {
  if (!SortsAll(node, contents) || node.output(0) == nullptr || node.output(1) == nullptr) {
    return std::nullopt;
  }
  return SortedIds{.ids = node.input(0), .sorted = node.output(0), .order = node.output(1)};
}

// Rows with a 1 at each place that a TopK chose of the row: as many ones as there are choices.
Value* ChoicesMarkedBy(const Value* marks) {
  const Node* node = marks->producer();
  while (node != nullptr && node->Is("Cast")) node = node->input(0)->producer();
  const bool marks_ones = node != nullptr && node->Is("ScatterElements") &&
                          StringOr(*node, "reduction", "none") == "none" &&
                          NormalAxis(IntOr(*node, "axis", 0), 2) == 1 && IsAll(node->input(0), 0) &&
                          IsAll(node->input(2), 1);
  if (!marks_ones) return nullptr;
  Value* ids = node->input(1);
  const Node* choice = ids->producer();
  const bool are_distinct = choice != nullptr && choice->Is("TopK") && ids == choice->output(1) &&
                            ids->shape() && ids->shape()->rank() == 2 &&
                            NormalAxis(IntOr(*choice, "axis", -1), 2) == 1;
  return are_distinct ? ids : nullptr;
}

std::optional<Counts> SummedMarks(const Node& sum, int64_t experts,
                                  const SymbolicContents& contents) {
  if (!sum.Is("ReduceSum") || sum.num_inputs() != 2) return std::nullopt;
  const auto axes = KnownInts(sum.input(1), contents);
  if (axes != std::vector<int64_t>{0} && axes != std::vector<int64_t>{-2}) return std::nullopt;
  Value* ids = ChoicesMarkedBy(sum.input(0));
  return ids ? std::optional(Counts{.ids = ids, .experts = experts}) : std::nullopt;
}

// A list that is a running sum over experts.
std::optional<Counts> CountsSummedBy(const Value* sums, const SymbolicContents& contents) {
  const Node* total = sums->producer();
  if (total == nullptr || !total->Is("CumSum") || IntOr(*total, "exclusive", 0) != 0 ||
      IntOr(*total, "reverse", 0) != 0) {
    return std::nullopt;
  }
  return CountsOf(total->input(0), contents);
}

}  // namespace

// All elements are that number, as a constant or filled in.
bool IsAll(const Value* value, double number) {
  if (const Tensor* tensor = ConstantOf(value)) {
    std::vector<double> values(static_cast<size_t>(tensor->size()));
    return DecodeToDouble(tensor->dtype(), tensor->data(), tensor->size(), values.data()).ok() &&
           std::all_of(values.begin(), values.end(), [&](double v) { return v == number; });
  }
  const Node* node = value->producer();
  if (node == nullptr) return false;
  if (node->Is("Expand") || IsView(*node)) return IsAll(node->input(0), number);
  if (!node->Is("ConstantOfShape")) return false;
  const Attribute* fill = node->attribute("value");
  const Tensor* tensor = fill == nullptr ? nullptr : std::get_if<Tensor>(&fill->value);
  if (tensor == nullptr) return number == 0;
  double held = 0;
  return DecodeToDouble(tensor->dtype(), tensor->data(), 1, &held).ok() && held == number;
}

std::optional<SortedIds> SortOf(const Value* value, const SymbolicContents& contents) {
  const Node* node = value->producer();
  return node == nullptr ? std::nullopt : SortBy(*node, contents);
}

std::optional<SortedIds> SortOfIds(const Value* ids, const SymbolicContents& contents) {
  for (const Use& use : ids->uses()) {
    if (use.node->graph() != ids->graph()) continue;
    const bool flattens = IsView(*use.node) && !IsVector(ids) && IsVector(use.node->output(0));
    const auto sort =
        flattens ? SortOfIds(use.node->output(0), contents) : SortBy(*use.node, contents);
    if (sort) return sort;
  }
  return std::nullopt;
}

std::optional<Counts> CountsOf(const Value* value, const SymbolicContents& contents) {
  const Node* node = value->producer();
  const bool counts = value->dtype() == DataType::kInt64 || value->dtype() == DataType::kInt32;
  if (node == nullptr || !IsVector(value) || !counts) return std::nullopt;
  const auto experts = (*value->shape())[0].constant();
  if (!experts) return std::nullopt;
  if (!node->Is("ScatterElements")) return SummedMarks(*node, *experts, contents);
  const bool adds = StringOr(*node, "reduction", "none") == "add" && IsVector(node->input(1)) &&
                    IsAll(node->input(0), 0) && IsAll(node->input(2), 1);
  return adds ? std::optional(Counts{.ids = node->input(1), .experts = *experts}) : std::nullopt;
}

std::optional<Place> PlaceOf(const Value* value, const SymbolicContents& contents) {
  const Node* node = value->producer();
  while (node != nullptr && IsView(*node)) node = node->input(0)->producer();
  if (node == nullptr) return std::nullopt;
  std::optional<int64_t> place;
  if (node->Is("Gather") && IntOr(*node, "axis", 0) == 0) {
    const auto index = KnownInts(node->input(1), contents);
    if (index && index->size() == 1) place = index->front();
  } else if (node->Is("Slice")) {
    const auto start = KnownInts(node->input(1), contents),
               end = KnownInts(node->input(2), contents);
    if (start && end && start->size() == 1 && end->front() == start->front() + 1)
      place = start->front();
  }
  const Value* list = node->input(0);
  const auto length = IsVector(list) ? (*list->shape())[0].constant() : std::nullopt;
  if (!place || !length) return std::nullopt;
  if (*length == 1) return PlaceOf(list, contents);
  return Place{.list = list, .at = *place < 0 ? *place + *length : *place};
}

std::optional<Offset> OffsetOf(const Value* value, const SymbolicContents& contents) {
  const auto place = PlaceOf(value, contents);
  const auto counts = place ? CountsSummedBy(place->list, contents) : std::nullopt;
  if (!counts) return std::nullopt;
  return Offset{.ids = counts->ids, .expert = place->at, .experts = counts->experts};
}

std::optional<Counts> JoinedCountsOf(const Value* list, const SymbolicContents& contents) {
  if (const auto counts = CountsOf(list, contents)) return counts;
  const Node* join = list->producer();
  if (join == nullptr || !join->Is("Concat")) return std::nullopt;
  const Value* all = nullptr;
  for (int i = 0; i < join->num_inputs(); ++i) {
    const auto& shape = join->input(i)->shape();
    const auto place = PlaceOf(join->input(i), contents);
    const bool follows = place && place->at == i && (i == 0 || place->list == all) && shape &&
                         shape->rank() == 1 && (*shape)[0].constant() == 1;
    if (!follows) return std::nullopt;
    all = place->list;
  }
  const auto counts = CountsOf(all, contents);
  return counts && counts->experts == join->num_inputs() ? counts : std::nullopt;
}

std::optional<int64_t> RowsQuotient(const Value* index, const SortedIds& sort,
                                    const SymbolicContents& contents) {
  const Node* quotient = index->producer();
  if (quotient == nullptr || !quotient->Is("Div") || quotient->input(0) != sort.order)
    return std::nullopt;
  const auto times = KnownInts(quotient->input(1), contents);
  if (!times || times->size() != 1 || times->front() < 1) return std::nullopt;
  return times->front();
}

bool AreAmong(const Value* ids, int64_t experts) {
  const Node* node = ids->producer();
  while (node != nullptr && IsView(*node)) {
    ids = node->input(0);
    node = ids->producer();
  }
  if (node == nullptr || !node->Is("TopK") || ids != node->output(1)) return false;
  const auto& choice = node->input(0)->shape();
  if (!choice) return false;
  const int64_t axis = NormalAxis(IntOr(*node, "axis", -1), choice->rank());
  const auto length = (*choice)[static_cast<int>(axis)].constant();
  return length && *length <= experts;
}

}  // namespace pagefuse
