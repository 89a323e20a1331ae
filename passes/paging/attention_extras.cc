// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/paging/attention_extras.h"

#include "absl/strings/numbers.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/edit/head_order.h"

namespace pagefuse {
namespace {

constexpr char kMark[] = "pagefuse.attention_extras";

std::optional<size_t> MarkOf(const Node& node) {
  const auto text = FindMetadata(node.metadata, kMark);
  size_t mark = 0;
  if (!text || !absl::SimpleAtoi(AbslView(*text), &mark)) return std::nullopt;
  return mark;
}

}  // namespace

ExtrasOfAttention::ExtrasOfAttention(const Graph& graph) { Unmark(graph); }

AttentionExtras& ExtrasOfAttention::At(Node* node) {
  if (const auto mark = MarkOf(*node)) return entries_[*mark].extras;
  SetMetadata(node->metadata, kMark, StrCat(entries_.size()));
  SetMetadata(node->metadata, kKeepsHeads, "");
  entries_.push_back({.attention = node->Description(), .extras = {}});
  return entries_.back().extras;
}

const AttentionExtras* ExtrasOfAttention::Find(const Node& node) const {
  const auto mark = MarkOf(node);
  return mark ? &entries_[*mark].extras : nullptr;
}

absl::Status ExtrasOfAttention::CheckKept(const Graph& graph) const {
  std::vector<int> nodes(entries_.size(), 0);
  for (const auto& node : graph.nodes()) {
    if (const auto mark = MarkOf(*node); mark && node->Is("Attention")) ++nodes[*mark];
  }
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i] == 1) continue;
    return absl::FailedPreconditionError(StrCat(
        entries_[i].attention,
        ": its sinks, biases and lengths: expected one Attention that has them, got ", nodes[i]));
  }
  return absl::OkStatus();
}

void ExtrasOfAttention::Unmark(const Graph& graph) {
  for (const auto& node : graph.nodes()) {
    std::erase_if(node->metadata, [](const auto& entry) {
      return entry.first == kMark || entry.first == kKeepsHeads;
    });
  }
}

}  // namespace pagefuse
