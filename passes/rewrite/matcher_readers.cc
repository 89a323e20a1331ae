// SPDX-License-Identifier: Apache-2.0
// Who reads the inner values of a match: the check that a rewrite takes nothing away from others.

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/rewrite/match_state.h"

namespace pagefuse {
namespace {

class ReaderCheck {
 public:
  ReaderCheck(const Pattern& pattern, const MatchState& state) : pattern_(pattern), state_(state) {
    for (const auto& [wanted, node] : state.nodes) inside_[node] = true;
    for (const CrossedView& view : state.views) inside_[view.node] = true;
    for (int output : pattern.outputs) outputs_.insert(state.bound[output]);
    for (size_t i = 0; i < state.bound.size(); ++i) {
      if (pattern.values[i].kind == PatternKind::kInput) inputs_.insert(state.bound[i]);
    }
  }

  absl::Status Run() {
    for (const auto& [wanted, node] : state_.nodes) {
      for (int i = 0; i < node->num_outputs(); ++i) {
        const Value* value = node->output(i);
        if (value == nullptr) continue;
        const Value* inner = wanted->output(i);
        if (inner != nullptr && pattern_[pattern_.id(inner)].metadata) continue;
        PF_RETURN_IF_ERROR(Check(*value));
      }
    }
    for (const CrossedView& view : state_.views) {
      if (!view.at_border) PF_RETURN_IF_ERROR(Check(*view.node->output(0)));
    }
    return absl::OkStatus();
  }

 private:
  // Moved elements of what comes into the match cost their other readers nothing: the nodes that move
  // them stay for those, as one for the keys of layers that share them.
  bool MovesInput(const Value& value) const {
    const Value* moved = &value;
    while (moved && !inputs_.contains(moved)) {
      const Node* node = moved->producer();
      if (!node || (!node->Is("Transpose") && !IsViewNode(*node))) return false;
      moved = node->input(0);
    }
    return moved != nullptr;
  }

  absl::Status Check(const Value& value) {
    if (outputs_.contains(&value)) return absl::OkStatus();
    if (value.is_output()) {
      return absl::NotFoundError(StrCat("\"", value.name(), "\" is a graph output"));
    }
    if (MovesInput(value)) return absl::OkStatus();
    for (const Use& use : value.uses()) {
      if (Serves(use.node, 0)) continue;
      return absl::NotFoundError(StrCat("\"", value.name(), "\" is read by ",
                                        use.node->Description(), " outside the match"));
    }
    return absl::OkStatus();
  }

  // True if the node is part of the match, or all that it computes goes into the match (a Shape
  // that only feeds a Reshape of it).
  bool Serves(const Node* node, int depth) {
    const auto it = inside_.find(node);
    if (it != inside_.end()) return it->second;
    constexpr int kMaxDepth = 16;
    if (depth > kMaxDepth) return false;
    inside_[node] = false;  // a node that reads itself through others serves nobody else
    bool serves = true;
    for (const Value* output : node->outputs()) {
      if (output == nullptr) continue;
      serves = serves && !output->is_output() && !inputs_.contains(output);
      for (const Use& use : output->uses()) serves = serves && Serves(use.node, depth + 1);
    }
    return inside_[node] = serves;
  }

  const Pattern& pattern_;
  const MatchState& state_;
  absl::flat_hash_map<const Node*, bool> inside_;
  absl::flat_hash_set<const Value*> outputs_;
  absl::flat_hash_set<const Value*> inputs_;
};

}  // namespace

absl::Status CheckInnerValues(const Pattern& pattern, const MatchState& state) {
  return ReaderCheck(pattern, state).Run();
}

}  // namespace pagefuse
