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

// The counts of ids [E] behind a running sum over experts.
std::optional<Offset> CountsOf(const Value* sums) {
  const Node* total = sums->producer();
  if (total == nullptr || !total->Is("CumSum") || IntOr(*total, "exclusive", 0) != 0 ||
      IntOr(*total, "reverse", 0) != 0) {
    return std::nullopt;
  }
  const Node* counts = total->input(0)->producer();
  const bool adds = counts != nullptr && counts->Is("ScatterElements") &&
                    StringOr(*counts, "reduction", "none") == "add";
  if (!adds || !IsVector(counts->output(0)) || !IsVector(counts->input(1))) return std::nullopt;
  const auto experts = (*counts->output(0)->shape())[0].constant();
  if (!experts || !IsAll(counts->input(0), 0) || !IsAll(counts->input(2), 1)) return std::nullopt;
  return Offset{.ids = counts->input(1), .experts = *experts};
}

}  // namespace

std::optional<SortedIds> SortOf(const Value* value, const SymbolicContents& contents) {
  const Node* node = value->producer();
  return node == nullptr ? std::nullopt : SortBy(*node, contents);
}

std::optional<SortedIds> SortOfIds(const Value* ids, const SymbolicContents& contents) {
  for (const Use& use : ids->uses()) {
    if (use.node->graph() != ids->graph()) continue;
    if (const auto sort = SortBy(*use.node, contents)) return sort;
  }
  return std::nullopt;
}

std::optional<Offset> OffsetOf(const Value* value, const SymbolicContents& contents) {
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
  std::optional<Offset> offset = place ? CountsOf(node->input(0)) : std::nullopt;
  if (!offset) return std::nullopt;
  offset->expert = *place < 0 ? *place + offset->experts : *place;
  return offset;
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
