// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/runtime/plain_pasts.h"

#include <algorithm>
#include <vector>

#include "absl/container/flat_hash_set.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/edit/op_types.h"
#include "pagefuse/passes/edit/ports.h"
#include "pagefuse/passes/paging/past_ledger.h"

namespace pagefuse {
namespace {

using Seen = absl::flat_hash_set<const Value*>;

bool WritesRows(const Node& node) {
  return IsAnyOf(node, {"ScatterElements", "ScatterND", "TensorScatter"});
}

// The same rows in another order of axes.
bool IsMove(const Node& node) { return IsAnyOf(node, {"Identity", "Transpose"}); }

// Caches of GroupQueryAttention have a length of their own, and what is in them counts for nothing
// before the first token.
bool IsReadByLength(const Value* past) {
  return !past->uses().empty() && std::ranges::all_of(past->uses(), [](const Use& use) {
    return use.node->Is("GroupQueryAttention", "com.microsoft") &&
           (use.index == ports::GroupQueryAttention::kPastKey ||
            use.index == ports::GroupQueryAttention::kPastValue);
  });
}

// What holds all rows of a value that is read so; null for other readers.
const Value* HolderOf(const Use& use) {
  const Node& node = *use.node;
  const bool first = use.index == 0;
  if (first && (node.Is("Concat") || IsMove(node) || WritesRows(node))) return node.output(0);
  using ports::Attention;
  if (!node.Is("Attention") || node.num_outputs() <= Attention::kPresentValue) return nullptr;
  if (use.index == Attention::kPastKey) return node.output(Attention::kPresentKey);
  return use.index == Attention::kPastValue ? node.output(Attention::kPresentValue) : nullptr;
}

Seen HoldersOf(const Value* past) {
  Seen holders;
  std::vector<const Value*> open = {past};
  while (!open.empty()) {
    const Value* next = open.back();
    open.pop_back();
    for (const Use& use : next->uses()) {
      const Value* holder = HolderOf(use);
      if (holder != nullptr && holders.insert(holder).second) open.push_back(holder);
    }
  }
  return holders;
}

bool IsComputedFrom(const Value* value, const std::vector<const Value*>& inputs) {
  Seen seen;
  std::vector<const Value*> open = {value};
  while (!open.empty()) {
    const Value* next = open.back();
    open.pop_back();
    if (next == nullptr || !seen.insert(next).second) continue;
    if (std::ranges::count(inputs, next) > 0) return true;
    if (!next->producer()) continue;
    for (const Value* input : next->producer()->inputs()) open.push_back(input);
  }
  return false;
}

// True if a reader writes rows into the past, where the inputs say.
bool IsWrittenByPlace(const Value* past, const std::vector<const Value*>& places) {
  return std::ranges::any_of(past->uses(), [&places](const Use& use) {
    if (IsMove(*use.node)) return IsWrittenByPlace(use.node->output(0), places);
    if (use.index != 0 || !WritesRows(*use.node)) return false;
    const int index = use.node->Is("TensorScatter") ? 2 : 1;
    return IsComputedFrom(use.node->input(index), places);
  });
}

}  // namespace

const Value* PresentOf(const Graph& graph, const Value* past) {
  if (const Value* named = NamedPresentOf(graph, past->name())) return named;
  const Seen holders = HoldersOf(past);
  const Value* present = nullptr;
  for (const Value* output : graph.outputs()) {
    if (!holders.contains(output)) continue;
    if (present != nullptr) return nullptr;
    present = output;
  }
  return present;
}

absl::Status CheckStartsEmpty(const PlainInputs::Past& past,
                              const std::vector<const Value*>& places) {
  const Value* input = past.input;
  const auto& shape = input->shape();
  if (!shape || shape->rank() < 2) {
    return absl::FailedPreconditionError(
        StrCat("input \"", input->name(), "\": the axes of a past must be declared"));
  }
  if (IsReadByLength(input) || IsWrittenByPlace(input, places)) return absl::OkStatus();
  const auto& dims = shape->dims();
  if (std::any_of(dims.begin() + 1, dims.end(), [](const Dim& dim) { return !dim.constant(); })) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      StrCat("input \"", input->name(), "\" is a state of ", shape->ToString(),
             ", which another graph starts; take the graph that prefills"));
}

}  // namespace pagefuse
